"""What else than a step changes a state beside its copy is found, and loses one save."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.errors import CheckpointError
from airflow_ett.events import Kind

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from airflow_ett.trainer import staging  # noqa: E402
from tests.trainer.saving import Gate, Training, adam, layers  # noqa: E402


@pytest.mark.parametrize("policy", ["warn", "raise"])
def test_weights_that_a_forward_pass_changes_lose_one_save_and_are_copied_at_once(
    begin: Callable[..., Training], gate: Gate, policy: str
) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(4, 8, max_norm=0.1), torch.nn.Linear(8, 1))
    inputs = torch.tensor([1, 2])
    objects = {"model": model, "optimizer": adam(model)}
    training = begin(objects, inputs, on_failed_save=policy)
    training.save()
    training.diary.on_wait = gate.opened.set
    training.step(inputs)
    assert training.committed == [1]
    (warning,) = training.diary.warnings
    assert "model.0.weight changed after the save" in warning
    assert "From now on all is copied at once" in warning
    assert training.told()[1:] == []
    training.saver.at_edge(stop=False)  # at once, whatever the interval, and without raising
    assert training.committed == [1, 3]
    for _ in range(2):
        training.step(inputs)
        expected = training.save()
        training.step(inputs)
    training.assert_saved(expected)
    assert len(training.diary.warnings) == 1


def test_loading_into_the_weights_before_the_step_is_found(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    before = copy.deepcopy(model.state_dict())
    training.save()
    model.load_state_dict(before)
    gate.opened.set()
    assert training.committed == [1]
    assert "model.0.weight" in training.diary.warnings[0]


@pytest.mark.parametrize("unseen", ["compiled", "around it"])
def test_what_steps_unseen_is_copied_at_once(
    begin: Callable[..., Training], gate: Gate, unseen: str
) -> None:
    model = layers()
    optimizer = adam(model)
    if unseen == "compiled":
        pytest.importorskip("torch._dynamo")
        optimizer.step = torch.compile(optimizer.step, backend="eager")
    else:
        optimizer.step = optimizer.step.__func__.__wrapped__.__get__(optimizer)
    training = begin({"model": model, "optimizer": optimizer})
    expected = training.save()
    training.step()
    assert gate.copied == 0
    training.assert_saved(expected)


def test_a_copy_that_fails_is_a_failed_save_and_the_step_goes_on(
    begin: Callable[..., Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("no more of it")

    monkeypatch.setattr(staging, "_copy", fail)
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)}, on_failed_save="raise")
    training.save()
    training.step()
    assert training.committed == [1]
    assert training.told()[1:] == []
    with pytest.raises(CheckpointError, match="MemoryError: no more of it"):
        training.saver.at_edge(stop=False)


TWO = """
import threading, time
import torch, torch.distributed as dist
from airflow_ett.trainer import Session, ranks, staging

ranks._PULSE_NS = 0  # they agree at every step
copy, main = staging._copy, threading.current_thread()

def slow(*arguments):
    if threading.current_thread() is not main:
        time.sleep(0.1)
    copy(*arguments)

staging._copy, staging.SMALL = slow, 1
with Session() as ett:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 8)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saver = ett.checkpointer(model=parallel, optimizer=optimizer, every_s=0.0)
    start = saver.restore()
    for number in ett.track(range(1, 17), cursor=start):
        optimizer.zero_grad()
        parallel(torch.randn(2, 8)).square().mean().backward()
        copying = saver._untold is not None and saver._untold.copying is not None
        if number < 12 and copying and dist.get_rank() == 1:
            with torch.no_grad():
                model.weight.mul_(1.0)
        optimizer.step()
        ett.step(number)
        time.sleep(0.05)
dist.destroy_process_group()
"""


def test_what_changes_on_one_rank_loses_the_save_of_all_of_them(job: Any) -> None:
    agent = job.agent(TWO, "--nproc", "2")
    _, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told
    assert told.count("rank 1: ChangedError: model.module.weight changed after the save") == 1
    kept = checkpoints.list_checkpoints(job.context.checkpoints)
    assert kept[-1].cursor == 16
    assert len(job.events(Kind.CHECKPOINT_COMMITTED)) > 2
