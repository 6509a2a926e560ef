"""A real Airflow beside a real Slurm, and the trainings that the one runs on the other."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_ett.events import Event, JobKey, RunDir, read_log, slug
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.metric import JobMetric, measure
from airflow_ett.storage import FolderStorage
from airflow_ett.store import upgrade
from tests.slurm import sshd
from tests.slurm.cluster import Cluster, missing
from tests.ui.made_site import text_of

FOLDER = Path(__file__).parent
DEPLOYMENT = "on-slurm"
SETUP = f"export PATH={Path(sys.executable).parent}:$PATH"
REQUEUE_WAIT_S = 10
CONNECTION = "cluster"
TRAINERS = FOLDER.parent / "trainers"

LOST, PREEMPTED = "n4", "n3"

CFG: Mapping[str, dict[str, Any]] = {
    "limited": {"nodelist": "n1", "time": "10"},
    "never": {"partition": "closed"},
    "held": {"partition": "closed", "exclude": "n[2-4]"},
    "requeued elsewhere": {"exclude": "n[1-3]", "requeue": True},
    "relaunched elsewhere": {"exclude": "n[1-3]", "requeue": False},
    "preempted": {"nodelist": PREEMPTED, "requeue": True},
    "preempted while saving": {"nodelist": PREEMPTED, "requeue": True},
    "unaccounted": {"nodelist": "n2", "requeue": True},
    "ended unaccounted": {"nodelist": "n1"},
    "unwatched": {"nodelist": "n1"},
    "ended unwatched": {"nodelist": "n1"},
    "cancelled": {"nodelist": "n2"},
    "together": {"nodelist": "n[2-3]"},
}
"""All trainings, and what each asks of Slurm."""

ALONE = ("never", "held", "together")
"""Those that nothing else waits for."""

BY_SSH = frozenset(
    {
        *("held", "together", "cancelled", "unaccounted", "ended unwatched"),
        *("preempted while saving", "requeued elsewhere", "relaunched elsewhere"),
    }
)
"""Those whose Slurm Airflow reaches by ssh alone."""

ELSEWHERE = ("requeued elsewhere", "relaunched elsewhere")
AGAIN = ("preempted", "preempted while saving", *ELSEWHERE)

SLOWLY = ("--upload-s=7",)
"""To write a checkpoint takes longer than KillWait."""

RUNS_ON = ("squeue", "--noheader", "--format=%N", "--jobs")


@dataclass
class Run:
    """One run of a training Dag."""

    world: World
    dag_id: str
    run_id: str

    @property
    def place(self) -> Path:
        return self.world.places / self.run_id

    @property
    def run_dir(self) -> RunDir:
        return RunDir(self.world.stack.home / "ett" / "runs" / self._key.path)

    @property
    def handle(self) -> str:
        return str(self.events("submitted")[-1].data["handle"])

    @property
    def job_id(self) -> str:
        """The number of the newest app's Slurm job."""
        app = self.events("submit_intended")[-1].data["app"]
        which = ("--noheader", "--states=all", "--format=%i", f"--name={app}")
        return self.world.cluster.run("squeue", *which)

    def begin(self, arguments: list[str], cfg: dict[str, Any]) -> None:
        self.place.mkdir(parents=True)
        resources = ["--cpu=1", "--memMB=200"]
        conf = {"cfg": {"setup": SETUP, **cfg}, "arguments": [*resources, *arguments]}
        body = {"dag_run_id": self.run_id, "logical_date": None, "conf": conf}
        self.world.stack.api.request("POST", f"/dags/{self.dag_id}/dagRuns", json=body)

    def events(self, kind: str) -> list[Event]:
        log = StorageLog(FolderStorage(self.run_dir.path), self._key)
        return [event for event in log.launcher_events() if event.kind == kind]

    def told(self, kind: str, name: str) -> list[Any]:
        """Return what the launchers' events of a kind say."""
        return [event.data.get(name) for event in self.events(kind)]

    def starts(self) -> list[int]:
        """Return from where each of its trainers has started, in order."""
        path = self.place / "starts"
        return (
            [int(line.split()[-1]) for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )

    def reached(self) -> list[int]:
        """Return how far its trainers have come."""
        return [int(path.read_text() or 0) for path in self.place.glob("trained-*")]

    def until(self, what: Callable[[], Any], seconds: float = 120) -> Any:
        limit = time.monotonic() + seconds
        while not (answer := what()):
            assert time.monotonic() < limit, f"{self.run_id}: waited {seconds} s; {self._state()}"
            time.sleep(0.2)
        return answer

    def trains(self, starts: int = 1) -> None:
        """Wait until so many trainers have started, and the last one has saved a little."""

        def there() -> bool:
            assert not self.events("job_ended"), f"{self.run_id} is over; {self._state()}"
            began = self.starts()
            return len(began) == starts and max(self.reached()) > began[-1] + 40

        self.until(there)

    def finish(self) -> None:
        """Let its trainers stop a little ahead; they never see half a goal."""
        draft = self.place / "goal.draft"
        draft.write_text(str(max(self.reached()) + 20))
        draft.replace(self.place / "goal")

    def end(self, seconds: float = 180) -> str:
        """Wait until it is over; return its state in Airflow."""
        return str(self.world.stack.api.wait_for_run(self.dag_id, self.run_id, timeout_s=seconds))

    def metric(self) -> JobMetric:
        """Measure it; check the sums that always hold, and that its trainers saw nothing wrong."""
        logs = self.run_dir.logs()
        metric = measure([event for path in logs for event in read_log(path).events])
        assert sum(metric.phases_ns.values()) == metric.wall_ns
        assert sum(metric.levels_ns.values()) == metric.wall_ns
        assert not (self.place / "wrong").exists(), (self.place / "wrong").read_text()
        return metric

    def page(self) -> str:
        """Return what its run tab shows."""
        return self.world.page(f"run/{self.dag_id}?run_id={self.run_id}")

    def _state(self) -> str:
        told = [self.told("scheduler_state", name) for name in ("raw", "reason")]
        return f"Slurm said {list(zip(*told, strict=True))}"

    @property
    def _key(self) -> JobKey:
        return JobKey(DEPLOYMENT, self.dag_id, self.run_id, "train")


@dataclass
class World:
    """An Airflow, a Slurm, the machine to log in to it, and the folder of the trainings' places."""

    stack: Any
    cluster: Cluster
    login: sshd.Sshd
    places: Path

    def run(self, name: str, dag_id: str = "slurm") -> Run:
        return Run(self, dag_id, slug(name))

    def page(self, address: str) -> str:
        """Return what a user who may only look sees of one of our pages."""
        token = self.stack.login("viewer").token
        answer = requests.get(
            f"{self.stack.url}/ett/{address}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        return text_of(answer.text)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Both of them, on their own, and an sshd before the Slurm."""
    why_not = missing() or sshd.missing()
    if why_not:
        pytest.skip(f"no Slurm: {why_not}")
    pytest.importorskip("airflow.providers.ssh", reason="pip install 'airflow-ett[airflow,ssh]'")
    from airflow_ett.demo.stack import AirflowStack

    folder = tmp_path_factory.mktemp("on-slurm")
    home, database = folder / "airflow", f"sqlite:///{folder}/ett.db"
    upgrade(database)
    with contextlib.ExitStack() as ends:
        cluster = Cluster(5, requeue_wait=REQUEUE_WAIT_S)
        ends.callback(cluster.stop)
        cluster.start()
        login = sshd.Sshd({"SLURM_CONF": cluster.conf})
        ends.callback(login.stop)
        login.start()
        stack = AirflowStack(
            home,
            dags=FOLDER / "dags",
            users={"admin": "admin", "viewer": "viewer"},
            env={
                "SLURM_CONF": cluster.conf,
                f"AIRFLOW_CONN_{CONNECTION.upper()}": login.uri(),
                "AIRFLOW__ETT__DEPLOYMENT": DEPLOYMENT,
                "AIRFLOW__ETT__SQL_ALCHEMY_CONN": database,
                "AIRFLOW__CORE__PARALLELISM": "8",
                # All runs at once are much for SQLite: who waits 5 s for it in vain would crash.
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout=60",
            },
        )
        ends.callback(stack.stop)
        stack.start()
        yield World(stack, cluster, login, folder / "places")


@pytest.fixture(scope="module")
def runs(world: World) -> dict[str, Run]:
    """All of them, as soon as they train."""
    from airflow_ett.demo.stack import free_port

    runs = {}
    for dag_id in ("slurm", "slurm_impatient"):
        world.stack.api.wait_for_dag(dag_id)
    for name, cfg in CFG.items():
        run = runs[name] = world.run(name, "slurm_impatient" if name == "never" else "slurm")
        way = {"ssh_conn_id": CONNECTION} if name in BY_SSH else {}
        trainer, options, more = "saving.py", (), ()
        if name == "together":  # its nodes share a loopback with all that runs here
            trainer, options = "together.py", ("-j", "2x1", "--rdzv_port", str(free_port(0)))
        elif name == "preempted while saving":
            more = SLOWLY
        script = (f"--script={TRAINERS / trainer}", *options)
        run.begin([*script, "--", f"--place={run.place}", *more], cfg | way)
    for name in CFG.keys() - ALONE:
        runs[name].trains()
    limit = (f"job={runs['limited'].job_id}", "timelimit=1")  # in minutes, from its start
    world.cluster.run("scontrol", "update", *limit)
    return runs


@pytest.fixture(scope="module")
def released_s(world: World, runs: dict[str, Run]) -> float:
    """Slurmctld goes away until everybody has noticed, and comes back.

    One that waits was held before and is released then; returns when, in seconds since 1970.
    """
    cluster, held = world.cluster, runs["held"]
    goes_on, ends = runs["unwatched"], runs["ended unwatched"]
    assert [runs[name].end() for name in ("never", "together")] == ["failed", "success"]
    held.until(lambda: "PartitionDown" in held.told("scheduler_state", "reason"))
    held_s = time.time()
    cluster.run("scontrol", "hold", held.job_id)
    cluster.run("scontrol", "update", f"job={held.job_id}", "partition=train")
    held.until(lambda: held.told("scheduler_state", "reason")[-1] == "JobHeldAdmin")
    saved = cluster.folder / "controller" / "job_state"
    cluster.until(lambda: saved.stat().st_mtime > held_s)  # what it has not saved it forgets
    cluster.kill("slurmctld")
    ends.finish()
    for run in (goes_on, ends):
        run.until(lambda run=run: "UNKNOWN" in run.told("scheduler_state", "state"))
    cluster.start_again("slurmctld")
    goes_on.until(lambda: goes_on.told("scheduler_state", "state")[-1] == "RUNNING")
    released_s = time.time()
    cluster.run("scontrol", "release", held.job_id)
    return released_s


@pytest.fixture(scope="module")
def acted_s(world: World, runs: dict[str, Run], released_s: float) -> dict[str, float]:
    """Jobs are preempted, one of them while nobody can ask slurmdbd, and a node is lost.

    Returns when, in seconds since 1970, by the node's name. All that lives then ends well.
    """
    cluster, unseen, acted_s = world.cluster, runs["ended unaccounted"], {}
    cluster.kill("slurmdbd")
    acted_s["n2"] = _preempt(world, "n2")
    unseen.finish()
    runs["unaccounted"].trains(2)
    assert unseen.end() == "success", unseen.told("attempt_ended", "evidence")
    cluster.start_again("slurmdbd")
    kept = ("sacct", "--noheader", "--allocations", "--format=State", "--jobs", unseen.job_id)

    def told() -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):  # it is only coming up
            return "COMPLETED" in cluster.run(*kept)
        return False

    cluster.until(told)
    acted_s[PREEMPTED] = _preempt(world, PREEMPTED)
    assert {cluster.run(*RUNS_ON, runs[name].job_id) for name in ELSEWHERE} == {LOST}
    acted_s[LOST] = time.time()
    cluster.lose(LOST)
    runs["held"].trains()
    for name in ("held", "unaccounted", "unwatched"):
        runs[name].finish()
    for run in (runs[name] for name in AGAIN):
        run.trains(2)
        run.finish()
    return acted_s


def _preempt(world: World, node: str) -> float:
    """Have all jobs of a node preempted; return when that was."""
    acted_s = time.time()
    which = ("--partition=urgent", f"--nodelist={node}", "--exclusive", "--output=none")
    world.cluster.run("sbatch", *which, "--wrap", "sleep 1")
    return acted_s
