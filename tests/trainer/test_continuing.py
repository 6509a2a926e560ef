"""Where a training begins and goes on, as the operator and former generations have it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.events import JobContext, Kind
from airflow_ett.metric import measure

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

TRAIN = """
import json, os, sys
import torch
from airflow_ett.trainer import Session

total, fail_at = json.loads(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
with Session() as ett:
    saver = ett.checkpointer(model=model, optimizer=optimizer, every_s=None)
    start = saver.restore()
    momenta = [state.get("momentum_buffer") for state in optimizer.state.values()]
    begun = [start, model.weight.tolist(), any(m is not None and bool(m.any()) for m in momenta)]
    for number, _ in enumerate(ett.track(range(start, total), cursor=start), start=1):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).square().mean().backward()
        optimizer.step()
        ett.step(number)
        if start + number == fail_at:
            saver.save(wait=True)
            raise ValueError("no such column")
print(json.dumps([*begun, model.weight.tolist()]))
"""

Elsewhere = Callable[..., JobContext]


class Run:
    """How a training began and ended."""

    def __init__(self, job: Any, total: int, fail_at: int = 0) -> None:
        plan = json.dumps([total, fail_at])
        process = job.start(str(job.script(TRAIN)), plan)
        out, self.err = process.communicate(timeout=120)
        self.code = process.returncode
        if out:
            self.start, self.weights, self.has_momentum, self.left = json.loads(out)


@pytest.fixture
def elsewhere(job: Any, tmp_path: Path) -> Elsewhere:
    """A function that returns the context of a next generation, in a folder of its own."""
    first = job.context

    def other(name: str, **changes: Any) -> JobContext:
        folder = tmp_path / name
        folder.mkdir()
        paths = {"run_dir": str(folder), "checkpoints": str(folder / "checkpoints")}
        key = replace(first.key, generation=2)
        made: JobContext = replace(first, key=key, **paths, **changes)
        return made

    return other


def newest(job: Any) -> checkpoints.Checkpoint:
    found = checkpoints.newest_committed(job.context.checkpoints)
    assert found is not None
    return found


def test_a_generation_after_a_failure_inherits_checkpoint_and_high_water_mark(
    job: Any, elsewhere: Elsewhere
) -> None:
    assert Run(job, 30, fail_at=20).code == 1
    left = newest(job)
    job.context = elsewhere("g2", inherit=left.uri, hwm=25)
    run = Run(job, 30)
    assert (run.code, run.start, run.has_momentum) == (0, 20, True), run.err
    (resumed,) = job.events(Kind.RESUMED)
    assert resumed.data == {"checkpoint": left.uri, "cursor": 20, "hwm": 25}
    # What the former generation had trained beyond its checkpoint is trained again.
    rows = [event.data for event in job.events(Kind.INTERVAL) if event.data["steps"]]
    assert [(r["cursor_from"], r["cursor_to"]) for r in rows] == [(20, 25), (25, 26), (26, 30)]
    assert measure(job.events()).phases_ns["replay"] > 0
    assert newest(job).cursor == 30
    assert newest(job).path.parent == Path(job.context.checkpoints)
    assert left.path.is_dir()  # the former generation's stay where they are


def test_a_job_begins_as_the_operator_says_and_goes_on_from_its_own_checkpoints(
    job: Any, elsewhere: Elsewhere
) -> None:
    yesterday = Run(job, 20)
    source = newest(job)
    for name, says, start, weights, has_momentum in (
        ("never", {"resume": "never", "inherit": source.uri}, 0, None, False),
        ("named", {"resume": source.uri}, 20, yesterday.left, True),
        ("weights", {"init_from": source.uri}, 0, yesterday.left, False),
    ):
        job.context = elsewhere(name, **says)
        begun = Run(job, 24)
        assert (begun.code, begun.start, begun.has_momentum) == (0, start, has_momentum), begun.err
        assert (begun.weights == yesterday.left) is (weights is not None)
        assert begun.left != begun.weights
        assert [e.data["cursor"] for e in job.events(Kind.RESUMED)] == [start] * bool(start)
        assert "replay" not in measure(job.events()).phases_ns
        assert newest(job).cursor == 24
    job.next_submission()
    again = Run(job, 28)
    assert (again.start, again.weights, again.has_momentum) == (24, begun.left, True)
    checkpoints.verify(source)
