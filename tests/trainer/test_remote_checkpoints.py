"""A training whose checkpoints lie behind a URI: saved, resumed, thinned out, published."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.checkpoints.layout import folder
from tests.publish.reading import model_weights
from tests.s3 import new_bucket

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "fsspec"))), reason="needs torch and fsspec"
    ),
]

TRAIN = """
import torch, torch.distributed as dist
from airflow_ett.trainer import Session
with Session() as ett:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saver = ett.checkpointer(model=model, optimizer=optimizer, every_s=0)
    start = saver.restore()
    for number in ett.track(range(1, 11), cursor=start):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model.bias.fill_(start + number)
        ett.step(number)
    if dist.get_rank() == 0:
        print("start", start)
dist.destroy_process_group()
"""


def test_two_ranks_save_resume_and_leave_an_anchor_to_publish(job: Any, tmp_path: Path) -> None:
    root = f"local://{tmp_path}/bucket/job"
    for start in (0, 10, 20):
        _train(job, root, start)
    newest = checkpoints.newest_verified(root)
    assert newest is not None
    assert (newest.cursor, newest.uri) == (30, f"{root}/c000000000000030-s3.0.0")
    assert len(checkpoints.list_checkpoints(root)) <= 2
    assert (job.run_dir.checkpoints / ".lease").is_dir()
    assert {path.name[0] for path in (tmp_path / "bucket" / "job").iterdir()} == {"c"}
    assert model_weights(newest)["bias"].tolist() == [30.0, 30.0]


def test_two_ranks_train_on_a_real_s3_server(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease lies there, too, and a damaged checkpoint is passed over for the one before."""
    root = f"{new_bucket(monkeypatch)}/job"
    _train(job, root, 0)
    before, newest = checkpoints.list_checkpoints(root)
    assert newest.cursor == 10
    damaged = newest.path / next(name for name in newest.files if name.endswith(".distcp"))
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    told = _train(job, root, before.cursor)
    assert "is damaged (its digest)" in told
    last = checkpoints.newest_verified(root)
    assert last is not None
    assert last.uri == f"{root}/c{before.cursor + 10:015d}-s2.0.0"
    names = {path.name for path in folder(root).iterdir()}
    assert names == {".lease", *(c.path.name for c in checkpoints.list_checkpoints(root))}
    assert len(names) == 3
    assert model_weights(last)["bias"].tolist() == 2 * [before.cursor + 10.0]


def _train(job: Any, root: str, start: int) -> str:
    """Train ten samples from ``start`` on, under the next submission; return what was told."""
    job.context = replace(job.context, checkpoints=root)
    agent = job.agent(TRAIN, "--nproc", "2")
    out, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told
    assert f"start {start}" in out
    job.next_submission()
    return str(told)
