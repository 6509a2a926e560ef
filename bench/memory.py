"""What a running training holds of Airflow's memory, in both modes, in a real Airflow."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from airflow_ett.demo.processes import of_session
from airflow_ett.demo.rest import wait_until
from airflow_ett.demo.stack import AirflowStack
from airflow_ett.events import JobKey
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage

DAGS = Path(__file__).resolve().parents[1] / "tests" / "system" / "dags"
HELD = 2
DEFERRED = 8
SETTLE_S = 15.0
STEPS = 6000


class Memory(NamedTuple):
    """Proportional set sizes in MB: pages that several processes share count by their share."""

    task: float
    supervisor: float
    triggerer: float
    trigger: float


def pss_mb(pids: Iterable[int]) -> float:
    """Return the proportional set size of processes, all together."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def parent(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def watching(stack: AirflowStack, dag_id: str, run_id: str, mode: str) -> int:
    """Return the process that holds a run's training by the newest claim, which is of this mode."""
    key = JobKey("default", dag_id, run_id, "train")
    log = StorageLog(FolderStorage(stack.home / "ett" / "runs" / key.path), key)
    claims = [event for event in log.launcher_events() if event.kind == "claimed"]
    assert claims[-1].data["mode"] == mode, claims[-1]
    return int(claims[-1].data["owner"].rpartition(":")[2])


def start(stack: AirflowStack, dag_id: str, runs: Iterable[str], state: str) -> None:
    """Start trainings and wait until each has run for a while."""
    for run in runs:
        place = str(stack.home / f"place-{run}")
        stack.api.trigger(dag_id, run, {"place": place, "steps": STEPS})
    for run in runs:
        stack.api.wait_for_task(dag_id, run, "train", state)
        begun = stack.home / f"place-{run}" / "starts"
        wait_until(begun.exists, f"the trainer of {run} starts", 60)
    time.sleep(SETTLE_S)


def memory() -> Memory:
    """Start an Airflow, hold some trainings, defer others, look at the processes."""
    os.environ.pop("AIRFLOW_HOME", None)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        stack = AirflowStack(Path(folder), dags=DAGS)
        stack.start()
        try:
            for dag_id in ("training_held", "training_deferred"):
                stack.api.wait_for_dag(dag_id)
            held = [f"held-{number}" for number in range(HELD)]
            start(stack, "training_held", held, "running")
            tasks = [watching(stack, "training_held", run, "task") for run in held]
            task = median(pss_mb([pid]) for pid in tasks)
            supervisor = median(pss_mb([parent(pid)]) for pid in tasks)
            # The first one's imports are the triggerer's, however many follow.
            start(stack, "training_deferred", ["first"], "deferred")
            triggerer = [process.pid for process in of_session(stack.pid("triggerer"))]
            before = pss_mb(triggerer)
            more = [f"more-{number}" for number in range(DEFERRED)]
            start(stack, "training_deferred", more, "deferred")
            for run in more:
                watching(stack, "training_deferred", run, "trigger")
            growth = (pss_mb(triggerer) - before) / DEFERRED
        finally:
            stack.stop()
    return Memory(task, supervisor, before, growth)
