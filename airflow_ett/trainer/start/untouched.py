"""A trial run of a training's own code, after which the training is as before it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from airflow_ett.errors import EttError
from airflow_ett.trainer import randomness


class Changing(EttError):
    """The run would change the training, or has changed it; says by what."""


class _Alive(NamedTuple):
    modules: list[Any]
    leaves: list[Any]


@contextmanager
def untouched() -> Iterator[None]:
    """Have buffers, gradients and random numbers as before, however the block ends.

    They are those of all modules in this process, so that nobody has to name them. Weights are not
    copied, which could take all the memory there is: what would change them, a step of an
    optimizer, is refused. Raises :class:`Changing` for that, at once or in the block.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    alive = _find_alive()
    for module in alive.modules:
        _refuse(module)
    random = randomness.capture()
    buffers = _Buffers(alive.modules)
    gradients = [(leaf, leaf.grad) for leaf in alive.leaves]
    stepping = register_optimizer_step_pre_hook(_refuse_step)
    try:
        for leaf, gradient in gradients:
            if gradient is not None:
                leaf.grad = None  # so that nothing is added to it
        yield
    finally:
        stepping.remove()
        for leaf, gradient in gradients:
            leaf.grad = gradient
        randomness.put_back(random)
        buffers.put_back()


class _Buffers:
    """The buffers of modules, such as the means of a normalisation: which they are, and copies."""

    def __init__(self, modules: list[Any]) -> None:
        self._names = [(m, dict(m._buffers.items())) for m in modules]
        tensors = {id(t): t for _, names in self._names for t in names.values() if t is not None}
        self._copies = [(t, t.detach().clone()) for t in tensors.values()]

    def put_back(self) -> None:
        """Raises :class:`Changing` for those that could not be put back, after all others."""
        import torch

        problems = []
        with torch.no_grad():
            for tensor, copy in self._copies:
                try:
                    if not torch.equal(tensor, copy):
                        tensor.copy_(copy)
                except Exception as error:
                    problems.append(error)
        for module, names in self._names:
            for name, now in list(module._buffers.items()):
                if name not in names:
                    delattr(module, name)
                elif now is not names[name]:
                    setattr(module, name, names[name])
        if problems:
            raise Changing(f"{len(problems)} buffers cannot be put back: {problems[0]}")


def _find_alive() -> _Alive:
    """Return all modules, and all tensors that gather gradients, of this process."""
    import torch

    frozen = gc.get_freeze_count()
    gc.unfreeze()  # what is frozen is not listed
    things = gc.get_objects()
    if frozen:
        gc.freeze()
    modules, leaves = [], []
    with torch._C.DisableTorchFunctionSubclass():
        for thing in things:
            kind = type(thing)  # isinstance would ask proxies, and run what they stand for
            if issubclass(kind, torch.nn.Module):
                if getattr(thing, "_buffers", None) is not None:
                    modules.append(thing)
            elif issubclass(kind, torch.Tensor) and thing.is_leaf and thing.requires_grad:
                leaves.append(thing)
    return _Alive(modules, leaves)


def _refuse(module: Any) -> None:
    from torch.nn.parameter import is_lazy

    name = type(module).__name__
    if any(is_lazy(weight) for weight in module._parameters.values()):
        raise Changing(f"{name} has no weights before its first batch: run it once before")
    if hasattr(type(module), "fused_optimizer"):  # so torchrec calls it
        raise Changing(f"{name} steps an optimizer in the backward pass")


def _refuse_step(*_: Any) -> None:
    raise Changing("it steps an optimizer: leave that out of what returns the loss")
