"""After a trial run everything of the training is as before, however the run ended."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from airflow_ett.trainer.start.untouched import Changing, untouched

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.drop = torch.nn.Dropout(0.5)
        self.out = torch.nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", None)
        self.register_buffer("mask", torch.ones(1).expand(4))

    def forward(self, batch: Any) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * batch.mean(0)  # another tensor, not another content
        self.last = batch
        self.register_buffer("seen", batch)
        return self.out(self.drop(self.norm(batch) * self.mask)).sum()


def a_step(model: Any) -> None:
    batch = torch.randn(8, 4) * random.random() * numpy.random.random()
    model(batch).backward()


def state(model: Any) -> tuple[Any, ...]:
    numbers = torch.rand(3).tolist(), random.random(), numpy.random.random()
    weights = [(name, t.tolist()) for name, t in model.state_dict().items()]
    gradients = [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
    return numbers, weights, gradients


@pytest.fixture
def model() -> Any:
    torch.manual_seed(1)
    random.seed(2)
    numpy.random.seed(3)
    return Model()


@pytest.mark.parametrize("frozen", [False, True], ids=["", "behind gc.freeze()"])
@pytest.mark.parametrize("trained", [False, True], ids=["new", "with gradients"])
def test_the_next_step_is_the_same(model: Any, trained: bool, frozen: bool) -> None:
    if trained:
        a_step(model)
    expected = _twin(model, a_step)
    if frozen:
        gc.freeze()
    try:
        buffer, gradient = model.norm.running_mean, model.out.weight.grad
        with untouched():
            a_step(model)
            assert model.out.weight.grad is not gradient
        assert bool(gc.get_freeze_count()) is frozen
    finally:
        gc.unfreeze()
    assert model.norm.running_mean is buffer
    assert model.out.weight.grad is gradient
    assert trained or not hasattr(model, "seen")
    a_step(model)
    assert state(model) == expected


def _twin(model: Any, act: Callable[[Any], None]) -> tuple[Any, ...]:
    """Return the state of a copy of it after ``act``, with the same random numbers."""
    twin = copy.deepcopy(model)
    for one, other in zip(twin.parameters(), model.parameters(), strict=True):
        one.grad = None if other.grad is None else other.grad.clone()
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    act(twin)
    found = state(twin)
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    numpy.random.set_state(states[2])
    return found


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_also_after_an_error(model: Any, error: type[BaseException]) -> None:
    expected = _twin(model, a_step)

    def fail() -> None:
        a_step(model)
        raise error

    with pytest.raises(error), untouched():
        fail()
    a_step(model)
    assert state(model) == expected


def test_a_gradient_outside_all_modules_is_as_before() -> None:
    weight = torch.ones(2, requires_grad=True)
    with untouched():
        weight.sum().backward()
    assert weight.grad is None


def step(optimizer: Any, model: Any) -> None:
    a_step(model)
    optimizer.step()


def step_in_backward(optimizer: Any, model: Any) -> None:
    model.out.weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    a_step(model)


@pytest.mark.parametrize("act", [step, step_in_backward])
def test_no_optimizer_steps(model: Any, act: Callable[[Any, Any], None]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    weight = model.out.weight.tolist()
    with pytest.raises(Changing, match="it steps an optimizer"), untouched():
        act(optimizer, model)
    assert model.out.weight.tolist() == weight
    model.out.weight._post_accumulate_grad_hooks = None
    step(optimizer, model)
    assert model.out.weight.tolist() != weight


class Fused(torch.nn.Module):  # type: ignore[misc]
    """As torchrec's are."""

    @property
    def fused_optimizer(self) -> Any:
        raise AssertionError("nothing of the user's is run for this")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.nn.LazyLinear(1), "LazyLinear has no weights before its first batch"),
        (Fused, "Fused steps an optimizer in the backward pass"),
    ],
)
def test_what_would_change_is_refused(make: Callable[[], Any], reason: str) -> None:
    module = make()
    with pytest.raises(Changing, match=reason), untouched():
        pytest.fail("it is begun")
    del module
    gc.collect()


def test_what_cannot_be_put_back_is_told_after_all_else(model: Any) -> None:
    def run() -> None:
        model.mean.resize_(9)
        model.norm(torch.randn(8, 4))

    with pytest.raises(Changing, match="1 buffers cannot be put back"), untouched():
        run()
    assert model.norm.running_mean.tolist() == [0.0] * 4
