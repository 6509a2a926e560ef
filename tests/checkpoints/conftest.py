"""Trainers that contend for a checkpoint directory, here and as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_ett.checkpoints.holder import Holder
from airflow_ett.events import AttemptId

_ROOT = Path(__file__).resolve().parents[2]

# Its arguments: root, job, submission, and what to do when the lease was taken.
_PRELUDE = """
import os, sys, time
from pathlib import Path
from airflow_ett import checkpoints
from airflow_ett.checkpoints.holder import Holder
from airflow_ett.checkpoints.lease import Lease
from airflow_ett.events import AttemptId
root, job, attempt = Path(sys.argv[1]), sys.argv[2], AttemptId(int(sys.argv[3]))
lease = Lease(root, Holder(job, f"dag.{job}", attempt, "elsewhere", os.getpid(), "yesterday"))
def say(*words): print(*words, flush=True)
"""


@pytest.fixture
def holder() -> Callable[..., Holder]:
    """A function that returns a trainer by attempt and job."""

    def make(*attempt: int, job: str = "mine") -> Holder:
        since = "2026-11-29T18:00:00+00:00"
        return Holder(job, f"dag.{job}", AttemptId(*attempt), "here", os.getpid(), since)

    return make


@pytest.fixture
def trainer() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts a process which has ``root``, ``lease`` and ``attempt`` at hand."""
    started: list[subprocess.Popen[str]] = []

    def start(
        root: Path, code: str, submission: int = 1, job: str = "mine"
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + code, str(root), job, str(submission)],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
