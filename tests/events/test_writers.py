"""What airflow_ett's own writers write, against the JSON Schema: launcher, agent and trainer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppDef

from airflow_ett.errors import LaunchError
from airflow_ett.events import Cause, JobContext, JobKey, Kind, RunDir
from airflow_ett.launch.gateway import Prepared
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.watcher import Watcher

KEY = JobKey("default", "dag", "run", "train")
LAUNCHER = list(Kind)[: list(Kind).index(Kind.PUBLISHED)]
TRAINER = set(Kind) - {*LAUNCHER, Kind.PUBLISHED, Kind.AIRFLOW_STATE, Kind.STALLED}

TRAIN = """
import os, signal, torch
from airflow_ett.trainer import Session
fate, total = os.environ["FATE"], int(os.environ["TOTAL"])
model = torch.nn.Linear(2, 1)
fast = torch.compile(model, backend="eager")
with Session() as ett:
    saver = ett.checkpointer(model=model, every_s=0.0)  # its lever is switched off
    start = saver.restore()
    for number, at in enumerate(ett.track(range(start, total, 4), cursor=start), start=1):
        fast(torch.ones(1, 2)).sum().backward()
        ett.step(number * 4)
        if number == 4 and fate == "preempted":
            os.kill(os.getpid(), signal.SIGTERM)
    with ett.phase("evaluation"):
        pass
    if fate == "failure":
        raise ValueError("as planned")
"""


class Scheduler:
    """A gateway whose app's state a test sets; the first submission is refused."""

    def __init__(self) -> None:
        self.now: Any = SchedulerStatus("PENDING", raw="PENDING", restart=-1)
        self.refused = False

    def prepare(self, **request: Any) -> Prepared:
        return Prepared("fake", AppDef("app"), {}, None)

    def accelerators(self, prepared: Prepared) -> int:
        return 8

    def submit(self, prepared: Prepared, name: str) -> str:
        if not self.refused:
            self.refused = True
            raise LaunchError("the queue is closed")
        return f"fake://{name}"

    def app_id(self, prepared: Prepared, name: str) -> str | None:
        return None

    def find(self, name: str, scheduler: str, app_id: str | None = None) -> str | None:
        return None

    def status(self, handle: str) -> SchedulerStatus:
        status: SchedulerStatus = self.now
        return status

    def cancel(self, handle: str) -> None:
        self.now = SchedulerStatus("CANCELLED", raw="CANCELLED", ended_ns=9)

    def log_location(self, handle: str, replica: int = 0) -> str | None:
        return "/logs/trainer-0"

    def last_lines(self, handle: str, replica: int, count: int) -> list[str]:
        return []


def kinds_of_valid_lines(validator: Any, run: RunDir) -> list[str]:
    lines = [json.loads(line) for path in run.logs() for line in path.read_text().splitlines()]
    for line in lines:
        validator.validate(line)
    return [line["event"] for line in lines]


def test_the_launchers_lines(validator: Any, tmp_path: Path) -> None:
    """Refused, retried, adopted, cleared, submitted again, and a success in the end."""
    scheduler = Scheduler()

    def watch(number: int) -> Watcher:
        job = open_job(Root(str(tmp_path)), KEY, checkpoint_root="", try_number=number, max_tries=3)
        claim = job.log.claim(try_number=number, max_tries=3, mode="trigger")
        request = Request("train", [], "fake")
        gateway: Any = scheduler
        return Watcher(job, claim, request, gateway)

    with pytest.raises(LaunchError):
        watch(1).begin()
    watch(2).begin()
    third = watch(3)
    third.begin()
    scheduler.now = SchedulerStatus("RUNNING", raw="RUNNING", allocated_ns=5, started_ns=6)
    assert third.poll() is None
    third.user_restart()
    assert third.poll().cause is Cause.USER_RESTART
    again = watch(3)
    again.begin()
    scheduler.now = SchedulerStatus("SUCCEEDED", raw="COMPLETED", ended_ns=9)
    assert again.poll().cause is None
    kinds = kinds_of_valid_lines(validator, RunDir(tmp_path / KEY.path))
    assert set(kinds) == set(LAUNCHER)


@pytest.mark.torch
def test_the_agents_and_the_trainers_lines(validator: Any, tmp_path: Path, repo: Path) -> None:
    """A failure, a preemption, and a success that leaves an anchor."""
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    for number, fate in enumerate(("failure", "preempted", "success"), start=1):
        context = JobContext(KEY, number, str(run.path), str(run.checkpoints), number)
        told = {"ETT_JOB": context.encode(), "FATE": fate, "TOTAL": str(40 * number)}
        told["ETT_BACKGROUND_SAVES"] = "0"
        done = subprocess.run(
            [sys.executable, "-m", "airflow_ett.trainer.agent", "--script", str(script)],
            env={**os.environ, "PYTHONPATH": str(repo), "OMP_NUM_THREADS": "1", **told},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == {"failure": 1, "preempted": 143, "success": 0}[fate], done.stderr
    assert set(kinds_of_valid_lines(validator, run)) == TRAINER


def test_the_worked_examples_lines(validator: Any, repo: Path) -> None:
    page = (repo / "docs" / "metric.md").read_text()
    (block,) = re.findall(r"^```jsonl\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for line in block.splitlines():
        validator.validate(json.loads(line))
