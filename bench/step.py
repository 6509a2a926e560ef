"""What a tracked step costs, beside a bare loop and beside one log line a step.

All run in turn, several rounds; a figure is the least of its rounds, since a shared machine only
ever adds time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import Target, publish

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import AttemptId, JobContext, JobKey, LogWriter
from airflow_ett.trainer import Session

STEPS = 100_000
ROUNDS = 7


def bare() -> None:
    for _ in range(STEPS):
        pass


def unlaunched() -> None:
    """A Session outside a launched job."""
    with Session() as ett:
        for done in ett.track(range(STEPS)):
            ett.step(done + 1)


def tracked() -> None:
    """A Session in a launched job: coalesced steps, exact cursor."""
    with tempfile.TemporaryDirectory() as folder:
        key = JobKey("bench", "dag", "run", "train")
        os.environ[JOB_VARIABLE] = JobContext(key, 1, folder, f"{folder}/c", 1).encode()
        try:
            unlaunched()
        finally:
            del os.environ[JOB_VARIABLE]


def one_line_a_step() -> None:
    """The plain alternative: append an event to a log at each step."""
    with tempfile.TemporaryDirectory() as folder:
        log = LogWriter(Path(folder, "log"), job="0" * 20, writer="w", attempt=AttemptId(1))
        for step in range(STEPS):
            log.append("step", {"step": step})
        log.close()


def nanoseconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - begin) / STEPS


def main() -> None:
    """Run all in turn and publish the least of each."""
    runs = {
        "tracked step": tracked,
        "outside a launched job": unlaunched,
        "one log line a step": one_line_a_step,
        "bare loop": bare,
    }
    rounds = [{name: nanoseconds(run) for name, run in runs.items()} for _ in range(ROUNDS)]
    figures = {name: min(row[name] for row in rounds) for name in runs}
    publish(
        "step", "ns a step", figures, [Target("tracked step", figures["tracked step"], "ns", 1000)]
    )


if __name__ == "__main__":
    main()
