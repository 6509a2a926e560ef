"""The example that the empty tab shows works as it stands."""

import os
import subprocess
import sys
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import pytest

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import JobContext, JobKey, Kind, LogWriter, RunDir, read_log
from airflow_ett.metric import measure
from airflow_ett.ui.examples import first_steps

FOLDER = Path(str(files("airflow_ett.examples"))) / "first_steps"


def test_the_lines_to_add_are_marked() -> None:
    shown = first_steps()
    added = {line.text.strip() for line in shown.dag + shown.train if line.added}
    assert {"TorchXTrainingOperator(", "with Session() as ett:"} <= added
    assert not [line for line in shown.dag + shown.train if "# +" in line.text]


def test_the_dag_parses() -> None:
    pytest.importorskip("airflow")
    code = (
        "import runpy, sys; dag = runpy.run_path(sys.argv[1])['dag']; "
        "print(*dag.task_dict['train'].component_args)"
    )
    command = [sys.executable, "-c", code, str(FOLDER / "dag.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"--script {FOLDER / 'train.py'}"


@pytest.mark.torch
def test_the_training_runs_alone_and_is_measured_when_launched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(FOLDER / "train.py")]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    environ.pop(JOB_VARIABLE, None)
    subprocess.run(command, env=environ, check=True)

    key = JobKey("default", "first_steps", "r", "train")
    run = RunDir(tmp_path / key.path)
    launcher = LogWriter(run.launcher / "1.jsonl", job=key.id, writer="launcher")
    launcher.append(Kind.JOB_OPENED, {"key": asdict(key), "accelerators": 0})
    context = JobContext(key, 1, str(run.path), str(run.checkpoints), epoch=1)
    launched = {**environ, JOB_VARIABLE: context.encode()}
    subprocess.run(command, env=launched, check=True)
    events = [event for path in run.logs() for event in read_log(path).events]
    ends = [event.data for event in events if event.kind == Kind.SESSION_ENDED]
    assert [(end["outcome"], end["cursor"]) for end in ends] == [("success", 4096)]
    assert [e.data["cursor"] for e in events if e.kind == Kind.CHECKPOINT_COMMITTED] == [4096]
    assert (measure(events).ett_pct or 0) > 0
