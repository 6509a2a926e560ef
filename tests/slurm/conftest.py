"""Trainings on a real Slurm: our gateway, our watcher, our component, and no Airflow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Event, JobKey
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.schedulers.slurm import Slurm
from airflow_ett.launch.schedulers.slurm.cluster import cluster as reached
from airflow_ett.launch.schedulers.slurm.transport import Local, Transport
from airflow_ett.launch.watcher import Watcher
from airflow_ett.metric import JobMetric, measure

KEY = JobKey("slurm", "dag", "run", "train")

LOOP = """
import os, time
from pathlib import Path
from airflow_ett.trainer import Session
{imports}
with Session() as ett:
    start = {restore}
    print("from", start, flush=True)
    for number, _ in enumerate(ett.track(range(start, {steps}), cursor=start), start=1):
        time.sleep(0.05)
        {body}
        ett.step(number)
"""


TORCH = """
import torch
import torch.distributed as dist
if int(os.environ["WORLD_SIZE"]) > 1:
    dist.init_process_group("gloo")
"""


@dataclass
class Training:
    """One job on a Slurm, and the watcher that follows it."""

    cluster: Any
    folder: Path
    way: dict[str, Any] = field(default_factory=dict)
    """Run options by which the cluster is reached."""

    def __post_init__(self) -> None:
        conn_id = self.way.get("ssh_conn_id")
        self.transport: Transport = reached(conn_id).transport if conn_id else Local()
        self.slurm = Slurm("test", self.folder / "apps", Local())
        self.gateway = Gateway({"slurm": lambda session, **_: self.slurm})
        self.root = Root(str(self.folder / "runs"))

    def begin(self, *what: str, limits: Limits | None = None, **how: Any) -> None:
        """Submit a training, as :meth:`write` describes it, and watch it."""
        self.request = self.write(*what, **how)
        self.watch(**({"limits": limits} if limits else {}))

    def write(
        self,
        body: str = "pass",
        *options: str,
        steps: int = 40,
        every: float = 0,
        cfg: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> Request:
        """Return a request for a training of so many steps of 50 ms; ``body`` is run in each.

        It saves every ``every`` seconds, and imports torch for that; never where that is 0.
        """
        script = self.folder / "train.py"
        imports = TORCH if every else ""
        restore = f"ett.checkpointer(every_s={every}).restore()" if every else "0"
        script.write_text(LOOP.format(body=body, steps=steps, imports=imports, restore=restore))
        return Request(
            "train",
            ["--script", str(script), "--cpu", "1", "--memMB", "200", *options],
            "slurm",
            cfg={**self.way, **(cfg or {})},
            env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **(env or {})},
        )

    def watch(self, try_number: int = 1, mode: str = "task", **options: Any) -> None:
        """Claim the job and go on with it, as another process does."""
        job = open_job(self.root, KEY, checkpoint_root="", try_number=try_number, max_tries=2)
        claim = job.log.claim(try_number=try_number, max_tries=2, mode=mode)
        self.log = job.log
        self.watcher = Watcher(job, claim, self.request, self.gateway, **options)
        self.watcher.begin()

    def until(self, true: Callable[[], object], timeout_s: float = 60) -> Outcome | None:
        """Watch until something holds or the try is over; return its outcome, if it is."""
        limit = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < limit, self.cluster.run("scontrol", "show", "job")
            outcome = self.watcher.poll()
            if outcome is not None:
                return outcome
            time.sleep(0.2)
        return None

    def ends(self, timeout_s: float = 60) -> Outcome:
        """Watch until the try is over."""
        outcome = self.until(lambda: False, timeout_s)
        assert outcome is not None
        return outcome

    @property
    def app(self) -> str:
        """The newest app's name."""
        return str(self.events("submit_intended")[-1].data["app"])

    @property
    def app_id(self) -> str:
        """The newest app's id."""
        return str(self.events("submit_intended")[-1].data["app_id"])

    def job_id(self) -> int:
        """The number of the newest app's Slurm job."""
        return int((self.folder / "apps" / self.app / "job").read_text())

    def output(self, node: int = 0) -> str:
        """What the newest app's node has printed."""
        output = self.slurm.output(self.app_id, "trainer", node)
        try:
            return output.read(0, 1 << 20).decode()
        except FileNotFoundError:
            return ""

    def says(self, text: str, timeout_s: float = 60) -> None:
        """Watch until the first node has printed something."""
        assert self.until(lambda: text in self.output(), timeout_s) is None

    def events(self, kind: str) -> list[Event]:
        """Return the launcher's events of a kind."""
        return [event for event in self.log.launcher_events() if event.kind == kind]

    def words(self) -> list[tuple[str, str]]:
        """Return state and raw word of all that the log has of Slurm."""
        return [(e.data["state"], e.data["raw"]) for e in self.events("scheduler_state")]

    def metric(self) -> JobMetric:
        """Measure the job."""
        events = self.log.launcher_events()
        for number in {e.data["submission"] for e in self.events("submit_intended")}:
            events = [*events, *self.log.submission_events(number)]
        return measure(events)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run trainings by ssh, too: those that are marked, all where ``ETT_TEST_BY_SSH`` is set."""
    asked = metafunc.definition.get_closest_marker("by_ssh") or os.environ.get("ETT_TEST_BY_SSH")
    if asked and "training" in metafunc.fixturenames:
        metafunc.parametrize("training", ["here", "by_ssh"], indirect=True)


@pytest.fixture
def training(request: pytest.FixtureRequest, slurm: Any, tmp_path: Path) -> Training:
    """A training on the cluster of three nodes."""
    if getattr(request, "param", "here") == "here":
        return Training(slurm, tmp_path)
    request.getfixturevalue("slurm_by_ssh")
    return Training(slurm, tmp_path, {"ssh_conn_id": "cluster"})
