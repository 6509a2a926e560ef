"""What a tracked step costs, beside ml-goodput-measurement 0.2.3's recorder and a line a step.

All run in turn, in many short rounds; a figure is the least of its rounds, since a shared machine
only ever adds time. The peer's entries go all their way but for the network: a stand-in takes the
requests. What it costs is told twice: until the last entry of a round is handed to its thread, and
until all are sent; ours are in the cursor file when the loop is over, and in the log every 10 s.

The demo is trained beside it, to see a step's share of what is to be measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from google.auth.credentials import AnonymousCredentials
from google.cloud import logging as cloud_logging
from ml_goodput_measurement.src.goodput import GoodputRecorder
from report import Target, publish

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import (
    AttemptId,
    JobContext,
    JobKey,
    Kind,
    LogWriter,
    RunDir,
    read_log,
)
from airflow_ett.trainer import Session

STEPS = 1_000
ROUNDS = 100
TIMES_CHEAPER = 50
DEMO_SAMPLES = 80_000
HANDED, SENT = "ml-goodput-measurement: handed over", "ml-goodput-measurement: sent"


def bare() -> None:
    for _ in range(STEPS):
        pass


def steps_of(ett: Session) -> Callable[[], None]:
    """A loop of tracked steps."""

    def run() -> None:
        for done in ett.track(range(1, STEPS + 1)):
            ett.step(done)

    return run


def lines_of(log: LogWriter) -> Callable[[], None]:
    """The plain alternative: append an event to a log at each step."""

    def run() -> None:
        for step in range(STEPS):
            log.append("step", {"step": step})

    return run


@contextmanager
def job() -> Iterator[tuple[str, RunDir]]:
    """A launched job: its context, and the run directory it has for so long."""
    with tempfile.TemporaryDirectory() as folder:
        key = JobKey("bench", "dag", "run", "train")
        yield JobContext(key, 1, folder, f"{folder}/c", 1).encode(), RunDir(Path(folder))


class Wire:
    """Stands in for the network."""

    def write_log_entries(self, request: object) -> None:
        """Take a request."""


def peer() -> GoodputRecorder:
    """The peer's recorder, whose requests reach the stand-in."""
    client = cloud_logging.Client(project="bench", credentials=AnonymousCredentials())
    client.logging_api._gapic_api = Wire()
    with mock.patch.object(cloud_logging, "Client", return_value=client):
        return GoodputRecorder("bench", "log", logging_enabled=True)


def recorded(recorder: GoodputRecorder) -> dict[str, float]:
    """Return nanoseconds a step of the peer's: handed over, and sent."""
    begin = time.perf_counter_ns()
    for step in range(STEPS):
        recorder.record_step_start_time(step)
    handed = time.perf_counter_ns()
    recorder.flush()
    sent = time.perf_counter_ns()
    return {HANDED: (handed - begin) / STEPS, SENT: (sent - begin) / STEPS}


def demo_step_ns() -> float:
    """Return how long a step of the demo's training takes, its batch and its loop included."""
    with job() as (context, run_dir):
        module = ["-m", "airflow_ett.examples.ranker.train", f"--samples={DEMO_SAMPLES}"]
        environ = os.environ | {JOB_VARIABLE: context}
        subprocess.run(
            [sys.executable, *module], env=environ, stdout=subprocess.DEVNULL, check=True
        )
        events = [event for log in run_dir.logs() for event in read_log(log).events]
    intervals = [event.data for event in events if event.kind == Kind.INTERVAL]
    took: int = sum(i["to"] - i["from"] for i in intervals)
    return took / int(sum(i["steps"] for i in intervals))


def nanoseconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - begin) / STEPS


def least() -> dict[str, float]:
    """Return the least nanoseconds a step of each way."""
    recorder = peer()
    with Session() as unlaunched, job() as (context, run_dir):
        log = LogWriter(run_dir.path / "log", job="0" * 20, writer="w", attempt=AttemptId(1))
        with mock.patch.dict(os.environ, {JOB_VARIABLE: context}), Session() as ett:
            runs = {
                "tracked step": steps_of(ett),
                "outside a launched job": steps_of(unlaunched),
                "one log line a step": lines_of(log),
                "bare loop": bare,
            }
            rounds = [
                {name: nanoseconds(run) for name, run in runs.items()} | recorded(recorder)
                for _ in range(ROUNDS)
            ]
    return {name: min(row[name] for row in rounds) for name in rounds[0]}


def main() -> None:
    """Run all in turn and publish the least of each."""
    figures = least()
    figures["a step of the demo"] = demo_step_ns()
    ours = figures["tracked step"]
    share = 100 * ours / figures["a step of the demo"]
    targets = [
        Target("tracked step", ours, "ns", 1000),
        Target("cheaper than the peer's", figures[SENT] / ours, "times", TIMES_CHEAPER, True),
        Target("share of the demo's step", share, "%", 0.1),
    ]
    publish("step", "ns a step", figures, targets)


if __name__ == "__main__":
    main()
