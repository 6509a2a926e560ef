"""A sharded training on two ranks, then on one, then on two again: equal in every tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

TRAIN = """
import os, sys
from pathlib import Path
import torch, torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict
from airflow_ett.trainer import Session

def whole(state):
    if isinstance(state, dict):
        return {name: whole(part) for name, part in state.items()}
    return state.full_tensor() if hasattr(state, "full_tensor") else state

def keep(stage):
    states = [whole(state) for state in get_state_dict(model, optimizer)]
    if first:
        torch.save(states, Path(os.environ["FOLDER"], stage + ".pt"))

with Session() as ett:
    world = int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(world)  # every run begins elsewhere
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 1)
    )
    first = True
    if world > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        dist.init_process_group("gloo")
        first = dist.get_rank() == 0
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 * world)
    saver = ett.checkpointer(model=model, optimizer=optimizer)
    start = saver.restore()
    keep("begin")
    for number in ett.track(range(1, 4), cursor=start):
        optimizer.zero_grad()
        model(torch.randn(6, 8)).square().mean().backward()
        optimizer.step()
        ett.step(number * 6)
    keep("end")
if world > 1:
    dist.destroy_process_group()
"""


def flat(state: Any, name: str = "") -> dict[str, Any]:
    """Return all leaves by their paths."""
    if isinstance(state, dict):
        parts: Any = state.items()
    elif isinstance(state, (list, tuple)):
        parts = enumerate(state)
    else:
        return {name: state}
    return {k: v for key, part in parts for k, v in flat(part, f"{name}/{key}").items()}


def assert_equal(end: Path, begin: Path) -> None:
    saved, loaded = (flat(torch.load(path, weights_only=True)) for path in (end, begin))
    assert saved.keys() == loaded.keys()
    tensors = [name for name, value in saved.items() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 6 + 3 + 3 * 6  # weights, BatchNorm's buffers, AdamW's three states
    for name, value in saved.items():
        if name in tensors:
            assert torch.equal(value, loaded[name]), name
        else:
            assert value == loaded[name], name


def run(job: Any, folder: Path, ranks: int) -> None:
    folder.mkdir()
    agent = job.agent(TRAIN, "--nproc", str(ranks), FOLDER=str(folder))
    _, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told
    job.next_submission()


def test_two_ranks_one_and_two_again_are_equal_in_every_tensor(job: Any, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    for folder, ranks in zip(folders, (2, 1, 2), strict=True):
        run(job, folder, ranks)
    assert_equal(folders[0] / "end.pt", folders[1] / "begin.pt")
    assert_equal(folders[1] / "end.pt", folders[2] / "begin.pt")
    newest = checkpoints.newest_verified(job.context.checkpoints)
    assert newest is not None
    assert newest.cursor == 3 * 18
    assert {"__0_0.distcp", "__1_0.distcp"} <= set(newest.files)
