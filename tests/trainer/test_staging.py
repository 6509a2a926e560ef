"""Copies beside the training: what a step changes waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.trainer.ranks import Ranks
from airflow_ett.trainer.shards import Shards

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from airflow_ett.trainer import staging  # noqa: E402
from tests.trainer.saving import Gate, Training, adam, layers  # noqa: E402


def test_a_step_waits_for_the_copy_and_the_wait_is_part_of_the_blocking(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    seen = len(training.diary.events)
    expected = training.save()
    training.backward()  # changes the buffers of BatchNorm
    assert gate.copied == 0
    assert training.told(seen) == []
    training.diary.on_wait = gate.opened.set
    training.step()
    assert gate.copied == 6 + 3 * 6  # the weights, and AdamW's three states of each; no buffers
    training.step()
    ((call, wait), (told,)) = training.waits(seen), training.told(seen)
    assert wait > 0
    assert told["blocking_ns"] == call + wait
    assert call < told["staging_ns"]
    training.assert_saved(expected)


def test_what_is_copied_before_the_step_makes_nobody_wait(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    seen = len(training.diary.events)
    gate.opened.set()
    expected = training.save()
    training.backward()
    training.saver.join()  # even the upload is over
    training.step()
    ((call,), (told,)) = training.waits(seen), training.told(seen)
    assert told["blocking_ns"] == call
    training.assert_saved(expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda model: {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)},
        lambda model: {"optimizer": adam(model, foreach=True)},
        lambda model: {"optimizer": adam(model, fused=True)},
        lambda model: {"optimizer": adam(model, capturable=False, amsgrad=True)},
        lambda model: {"scaler": torch.amp.GradScaler("cpu"), "optimizer": adam(model)},
        lambda model: {"first": adam(model[0]), "last": adam(model[1:])},
        lambda model: {"ema": torch.optim.swa_utils.AveragedModel(model), "optimizer": adam(model)},
    ],
    ids=["momentum", "foreach", "fused", "amsgrad", "scaler", "two optimizers", "averaged"],
)
def test_the_state_of_the_save_is_kept_whatever_steps(
    begin: Callable[..., Training], gate: Gate, make: Callable[[Any], dict[str, Any]]
) -> None:
    model = layers()
    training = begin({"model": model, **make(model)})
    expected = training.save()
    training.diary.on_wait = gate.opened.set
    for _ in range(3):
        training.step()
    assert gate.copied
    training.assert_saved(expected)
    assert training.diary.warnings == []


def test_what_no_optimizer_steps_is_copied_at_once(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    model[0].requires_grad_(False)
    training = begin({"model": model, "optimizer": adam(model[1:])})
    expected = training.save()
    with torch.no_grad():
        model[0].weight.fill_(3)
    training.backward()
    gate.opened.set()
    training.step()
    assert gate.copied == 4 + 3 * 4
    training.assert_saved(expected)


def test_shared_weights_are_copied_once(begin: Callable[..., Training], gate: Gate) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model[1].weight = model[0].weight
    model.register_buffer("alias", model[0].bias.detach())  # the same memory: who changes it?
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = begin({"model": model, "optimizer": optimizer})
    expected = training.save()
    training.diary.on_wait = gate.opened.set
    training.step()
    assert gate.copied == 2  # the shared weight and one of two biases
    training.assert_saved(expected)


@pytest.mark.parametrize("end", ["last", "anchor"])
def test_a_training_that_ends_without_another_step_keeps_its_save(
    begin: Callable[..., Training], gate: Gate, end: str
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    expected = training.save()
    gate.opened.set()
    training.saver.leave_last() if end == "last" else training.saver.leave_anchor()
    assert training.committed == [1, 2]
    assert len(training.told()) == 2
    training.assert_saved(expected)


def test_a_last_save_copies_all_at_once(begin: Callable[..., Training], gate: Gate) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    training.save(wait=True)
    assert training.committed == [1, 2]
    assert gate.copied == 0


def test_a_closed_checkpointer_leaves_the_optimizer_as_it_was(job: Any) -> None:
    model = layers()
    optimizer = adam(model)
    training = Training(job, {"model": model, "optimizer": optimizer})
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    training.saver.close()
    assert len(optimizer._optimizer_step_pre_hooks) == 0


def test_an_optimizer_that_needs_a_closure_is_saved_and_loaded(job: Any) -> None:
    def make() -> tuple[Any, Any]:
        torch.manual_seed(1)
        model = torch.nn.Linear(8, 1)
        return model, torch.optim.LBFGS(model.parameters(), max_iter=2)

    def step(model: Any, optimizer: Any) -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = (model(inputs) - 1).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    inputs = torch.randn(16, 8)
    straight, twin = make(), make()
    training = Training(job, {"model": straight[0], "optimizer": straight[1]})
    step(*straight)
    training.clock.cursor += 1
    training.save()
    step(*straight)
    training.saver.join()
    training.saver.close()
    newest = checkpoints.newest_verified(training.root)
    assert newest is not None
    Shards(Ranks(1), {"model": twin[0], "optimizer": twin[1]}, lambda: None).load(newest)
    step(*twin)
    for one, other in zip(straight[0].parameters(), twin[0].parameters(), strict=True):
        assert torch.equal(one, other)


def test_small_tensors_are_copied_at_once(
    begin: Callable[..., Training], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
    training = begin({"model": model, "optimizer": adam(model)})
    monkeypatch.setattr(staging, "SMALL", 8 * 4 * 4)
    expected = training.save()
    training.diary.on_wait = gate.opened.set
    training.step()
    assert gate.copied == 3  # one weight and its two moments
    training.assert_saved(expected)
