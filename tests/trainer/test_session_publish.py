"""Publishing from within the trainer: saved, published, booked; a failure reaches all ranks."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.events import Kind
from airflow_ett.trainer import Session

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("safetensors")

TRAIN = """
import json, os, sys
import torch
from airflow_ett.errors import PublishError
from airflow_ett.trainer import Session

plan = json.loads(os.environ["PLAN"])
sys.path.insert(0, plan["code"])
world = int(os.environ.get("WORLD_SIZE", 1))
with Session() as ett:
    if world > 1:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    import ett_published
    model = ett_published.build()
    saver = ett.checkpointer(model=model, every_s=None, golden=torch.ones(4, 3))
    for number in ett.track(range(1, 4)):
        with torch.no_grad():
            model[0].bias += 1
        ett.step(number * 2)
    try:
        told = ett.publish(
            model=plan["model"], registry=plan["registry"], name="toy", transforms=("float16",)
        )
        print("told", json.dumps(told), flush=True)
    except PublishError as error:
        print("error", error, flush=True)
if world > 1:
    torch.distributed.destroy_process_group()
"""
CODE = """
import os, signal, time, torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(3, 1))

def refused():
    raise RuntimeError("no such config")

def slow():
    with open(os.environ["BUSY"] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.replace(file.name, os.environ["BUSY"])
    time.sleep(60)
"""


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, str]:
    """Where the model's code and the registry are; the code is no child's by itself."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "ett_published.py").write_text(CODE)
    registry = str(tmp_path / "registry")
    return {"code": str(code), "registry": registry, "model": "ett_published:build"}


def words(out: str, first: str) -> list[str]:
    return [line.removeprefix(f"{first} ") for line in out.splitlines() if line.startswith(first)]


def test_the_present_state_is_published_and_booked(job: Any, plan: dict[str, str]) -> None:
    done = job.run(TRAIN, PLAN=json.dumps(plan))
    assert done.returncode == 0, done.stderr
    (text,) = words(done.stdout, "told")
    told = json.loads(text)
    folder = Path(told["uri"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"]["cursor"] == 6
    assert manifest["source"]["job"] == job.context.key.id
    assert manifest["transforms"] == ["float16"]
    assert manifest["check"]["inputs"] == "golden.safetensors of the checkpoint"
    assert manifest["check"]["difference"] < 2e-2
    phases = {e.data["span"]: e.data["phase"] for e in job.events(Kind.PHASE_BEGIN)}
    spans = {e.data["span"]: e.time_ns for e in job.events(Kind.PHASE_BEGIN, Kind.PHASE_END)}
    (span,) = [number for number, phase in phases.items() if phase == "publish"]
    begun = next(e.time_ns for e in job.events(Kind.PHASE_BEGIN) if e.data["span"] == span)
    assert begun < told["begin_ns"] < told["end_ns"] < spans[span]
    saved = [e for e in job.events(Kind.CHECKPOINT_COMMITTED) if not e.data["anchor"]]
    assert [e.data["cursor"] for e in saved] == [6]
    assert saved[0].time_ns < begun
    anchors = [e for e in job.events(Kind.CHECKPOINT_COMMITTED) if e.data["anchor"]]
    assert [e.data["checkpoint"] for e in anchors] == [saved[0].data["checkpoint"]]


def test_a_failure_is_raised_on_all_ranks(job: Any, plan: dict[str, str]) -> None:
    plan["model"] = "ett_published:refused"
    agent = job.agent(TRAIN, "--nproc", "2", PLAN=json.dumps(plan))
    out, err = agent.communicate(timeout=120)
    assert agent.returncode == 0, err
    errors = words(out, "error")
    assert len(errors) == 2, out + err
    assert errors[0] == errors[1]
    assert "does not work with ett_published:refused: RuntimeError: no such config" in errors[0]
    assert not (Path(plan["registry"]) / "toy" / "latest").exists()
    assert checkpoints.newest_verified(job.context.checkpoints) is not None


def test_sigterm_ends_the_publisher_and_the_training_is_preempted(
    job: Any, plan: dict[str, str], tmp_path: Path
) -> None:
    plan["model"] = "ett_published:slow"
    busy = tmp_path / "busy"
    process = job.start(str(job.script(TRAIN)), PLAN=json.dumps(plan), BUSY=str(busy))
    deadline = time.monotonic() + 60
    while not busy.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 143, err
    assert words(out, "told") == ["null"]
    assert not Path("/proc", busy.read_text()).exists(), "the process that tries it has ended, too"
    (ended,) = job.events(Kind.SESSION_ENDED)
    assert ended.data["outcome"] == "preempted"


def test_without_a_checkpointer_it_is_refused(job: Any, plan: dict[str, str]) -> None:
    code = "from airflow_ett.trainer import Session\nwith Session() as ett:\n"
    done = job.run(code + "    ett.publish(model='a:b', registry='/r', name='n')\n")
    assert "ConfigurationError: publish: needs the checkpointer" in done.stderr


def test_outside_a_launched_job_it_does_nothing() -> None:
    with Session() as ett:
        assert ett.publish(model="a:b", registry="/r", name="n") is None
