"""A training that was killed twice is the straight one: same samples, same order, same bits."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.events import Kind, read_cursor

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

BATCH, STEPS = 4, 100
KILLED_AFTER = (37, 37 + 41)

TRAIN = """
import hashlib, json, os, random, signal, sys, time
import torch
from airflow_ett.trainer import Session

BATCH, STEPS, kill_after, device = json.loads(sys.argv[1])
torch.use_deterministic_algorithms(True)
torch.manual_seed(3)
random.seed(3)
data = torch.randn(BATCH * STEPS, 8, generator=torch.Generator().manual_seed(1)).to(device)
order = torch.randperm(BATCH * STEPS, generator=torch.Generator().manual_seed(2)).tolist()
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1)
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)

def batches(at):
    for begin in range(at, BATCH * STEPS, BATCH):
        yield order[begin : begin + BATCH]

with Session() as ett, open(sys.argv[2], "a") as ids:
    saver = ett.checkpointer(model=model, optimizer=optimizer, schedule=schedule, every_s=0.05)
    start = saver.restore()
    for number, batch in enumerate(ett.track(batches(start), cursor=start), start=1):
        step = start // BATCH + number
        noise = torch.randn(BATCH, 8, device=device) * random.random()
        optimizer.zero_grad()
        model(data[batch] + noise).square().mean().backward()
        optimizer.step()
        schedule.step()
        print(ett.attempt.submission, step, *batch, file=ids, flush=True)
        ett.step(number * BATCH)
        time.sleep(0.01)
        if step == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
weights = b"".join(t.detach().cpu().numpy().tobytes() for t in model.state_dict().values())
print(hashlib.sha256(weights).hexdigest())
"""


def train(job: Any, device: str, kill_after: int | None = None) -> str:
    """Run an attempt to its end, or kill it after a step; return the digest of its weights."""
    plan, ids = json.dumps([BATCH, STEPS, kill_after, device]), str(job.run_dir.path / "ids")
    deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    process = job.start(str(job.script(TRAIN)), plan, ids, **deterministic)
    out, err = process.communicate(timeout=120)
    assert process.returncode == (-signal.SIGKILL if kill_after else 0), err
    return str(out.strip())


def seen(job: Any) -> dict[int, dict[int, list[int]]]:
    """Sample ids by attempt and step."""
    found: dict[int, dict[int, list[int]]] = {}
    for line in Path(job.run_dir.path, "ids").read_text().splitlines():
        attempt, step, *samples = map(int, line.split())
        found.setdefault(attempt, {})[step] = samples
    return found


def test_r27_37_and_41_and_22_steps_are_100_in_every_id_and_bit(job: Any, tmp_path: Path) -> None:
    compare(job, tmp_path, "cpu")


def compare(job: Any, tmp_path: Path, device: str) -> None:
    """Train straight, then in three pieces on the same device, and compare the two."""
    straight = train(job, device)
    (whole,) = seen(job).values()
    assert list(whole) == list(range(1, STEPS + 1))
    assert sorted(sample for ids in whole.values() for sample in ids) == list(range(BATCH * STEPS))

    other = tmp_path / "other"
    other.mkdir()
    job.context = replace(job.context, run_dir=str(other), checkpoints=str(other / "checkpoints"))
    for kill_after in (*KILLED_AFTER, None):
        ended = train(job, device, kill_after)
        job.next_submission()
    assert ended == straight

    resumed = [event.data["cursor"] // BATCH for event in job.events(Kind.RESUMED)]
    assert len(resumed) == 2
    assert all(0 < at <= killed for at, killed in zip(resumed, KILLED_AFTER, strict=True))
    pieces = seen(job)
    bounds = zip((0, *resumed), (*KILLED_AFTER, STEPS), pieces.values(), strict=True)
    for committed, last, piece in bounds:
        # The first step after a resume is the last committed one's successor, and none is left out.
        assert list(piece) == list(range(committed + 1, last + 1))
        assert all(whole[step] == samples for step, samples in piece.items())
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert (record.cursor, record.hwm) == (BATCH * STEPS, BATCH * STEPS)
    newest = checkpoints.newest_verified(job.context.checkpoints)
    assert newest is not None
    assert newest.cursor == BATCH * STEPS
