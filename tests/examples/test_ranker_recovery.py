"""The example trainer in a job: killed, resumed, published; as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from airflow_ett.checkpoints import Checkpoint, newest_committed
from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import Event, JobContext, JobKey, Kind, RunDir, read_log
from airflow_ett.publish import Request, publish
from tests.publish.reading import model_weights

pytestmark = pytest.mark.torch

SAMPLES = 4096
FAULTS = "--inject=1:raise:1500,2:kill:3000"


def train(root: Path, submission: int, *arguments: str) -> int:
    run_dir = RunDir(root / "run")
    context = JobContext(
        key=JobKey("test", "ranker", "run", root.name),
        submission=submission,
        run_dir=str(run_dir.path),
        checkpoints=str(run_dir.checkpoints),
        epoch=submission,
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", JOB_VARIABLE: context.encode()}
    command = [sys.executable, "-m", "airflow_ett.examples.ranker.train", "--no-compile"]
    command += ["--samples", str(SAMPLES), "--every-s", "0.01", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def events(root: Path, kind: Kind) -> list[Event]:
    logs = RunDir(root / "run").logs()
    found = [event for log in logs for event in read_log(log).events if event.kind == kind]
    return sorted(found, key=lambda event: event.time_ns)


def anchor(root: Path) -> Checkpoint:
    found = newest_committed(str(RunDir(root / "run").checkpoints))
    assert found is not None
    assert found.cursor == SAMPLES
    return found


def test_a_killed_training_ends_with_the_weights_of_an_undisturbed_one(tmp_path: Path) -> None:
    calm, hit = tmp_path / "calm", tmp_path / "hit"
    assert train(calm, 1) == 0
    assert train(hit, 1, FAULTS) == 1
    assert train(hit, 2, FAULTS) == -signal.SIGKILL
    assert train(hit, 3, FAULTS) == 0

    reached = {1: 1536, 2: 3072}
    resumed = {
        e.attempt.submission: e.data["cursor"] for e in events(hit, Kind.RESUMED) if e.attempt
    }
    assert sorted(resumed) == [2, 3]
    assert all(0 < resumed[at + 1] <= reached[at] for at in reached)
    for submission, cursor in resumed.items():
        intervals = [
            event.data
            for event in events(hit, Kind.INTERVAL)
            if event.attempt and event.attempt.submission == submission
        ]
        assert intervals[0]["cursor_from"] == cursor

    expected, found = model_weights(anchor(calm)), model_weights(anchor(hit))
    assert sorted(found) == sorted(expected)
    assert all(bool((found[name] == expected[name]).all()) for name in expected)
    model = "airflow_ett.examples.ranker.model:build"
    request = Request(
        checkpoint=anchor(hit).uri, model=model, registry=str(tmp_path / "models"), name="ranker"
    )
    published = publish(request)
    served = load_file(Path(published.uri, "model.safetensors"))
    assert all(bool((served[name] == expected[name]).all()) for name in expected)
