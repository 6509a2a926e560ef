"""A published version as a model that scores: what a server calls, and the publisher's own trial.

The weights are mapped from the file, not copied, wherever the model lets them be: they take no
memory of the process but what the kernel may drop again.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from airflow_ett.errors import PublishError
from airflow_ett.publish.registries.protocol import MANIFEST_FILE, WEIGHTS_FILE
from airflow_ett.publish.request import CASTS, INT8
from airflow_ett.publish.usercode import load_object

_EXTRA = "_extra_state"
"""Torch's name for what a module adds to its state, which is no weight: the factory's stays."""


class Loaded(NamedTuple):
    """A model with its weights; ``in_memory`` says why it had to be built there first, if so."""

    module: Any
    in_memory: str | None


def load(folder: str | Path, factory: str | Callable[[], Any] | None = None) -> Any:
    """Return the model of a published version, with its weights, on the CPU, to score with.

    ``folder``, on this host, holds the version's files. ``factory`` returns the model, or names
    what does; without it, it is what the manifest names, whose code runs: load only what you trust
    so far.

    After a cast the model computes in that type and turns inputs into it. After ``int8`` its
    ``Linear`` layers compute so, on a CPU; all else computes in the types of the factory.

    Raises :class:`PublishError` for a folder that holds no whole version, and what the factory and
    ``load_state_dict`` raise.
    """
    place = Path(folder)
    try:
        manifest = json.loads((place / MANIFEST_FILE).read_bytes())
        transforms, named = manifest["transforms"], manifest["factory"]
        told = manifest["files"][WEIGHTS_FILE]
        weights = place / Path(told.get("path", WEIGHTS_FILE)).name
        wanted, found = int(told["bytes"]), weights.stat().st_size
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PublishError(f"{place} holds no published version: {error!r}") from error
    if found != wanted:
        raise PublishError(f"{weights} has {found} bytes instead of {wanted}: fetch it again")
    return load_weights(weights, factory or named, transforms).module


def load_weights(
    weights: Path, factory: str | Callable[[], Any], transforms: list[str] | tuple[str, ...]
) -> Loaded:
    """Return the factory's model with the weights of a file, as :func:`load` does."""
    make = load_object(factory) if isinstance(factory, str) else factory
    cast = next((name for name in transforms if name in CASTS), None)
    quantised = INT8 in transforms
    stored = _open(weights)
    try:
        with _without_weights():
            module = _built(make)
        problem = _fill(module, stored, cast, quantised=quantised, in_memory=False)
    except Exception as error:  # what a factory does need not work without values
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    if problem is not None:
        module = _built(make)
        _fill(module, stored, cast, quantised=quantised, in_memory=True)
    if quantised:
        from airflow_ett.publish.int8 import quantise  # torch is heavy, so only now

        quantise(module, stored)
    return Loaded(module.requires_grad_(False).eval(), problem)


def _open(weights: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(weights, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping


@contextlib.contextmanager
def _without_weights() -> Iterator[None]:
    """Let modules that this thread makes within the block have parameters without values."""
    import torch

    thread = threading.get_ident()

    def forget(module: Any, name: str, parameter: Any) -> Any:
        if thread != threading.get_ident() or type(parameter) is not torch.nn.Parameter:
            return None
        return torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)

    hook = torch.nn.modules.module.register_module_parameter_registration_hook(forget)
    try:
        yield
    finally:
        hook.remove()


def _built(make: Callable[[], Any]) -> Any:
    import torch

    module = make()
    module = getattr(module, "_orig_mod", module)  # compiled: its weights have other names
    if not isinstance(module, torch.nn.Module):
        raise PublishError(f"the factory returned {type(module).__name__}, not a torch.nn.Module")
    return module


def _fill(
    module: Any, stored: Mapping[str, Any], cast: str | None, *, quantised: bool, in_memory: bool
) -> str | None:
    """Give a model its weights; return what it is left without, if anything.

    ``in_memory`` copies them into the model's own, which others may hold.
    """
    import torch

    own = module.state_dict()
    state = dict(stored)
    if quantised:
        from airflow_ett.publish.int8 import restored  # torch is heavy, so only now

        state = dict(restored(module, stored))
    later = {name for name, tensor in state.items() if tensor.is_meta}
    state = {name: tensor for name, tensor in state.items() if f"{_EXTRA}." not in name}
    state |= {name: own[name] for name in own if name.endswith(_EXTRA) and name not in state}
    if in_memory:
        state |= {name: own[name] for name in later}
    elif cast is None:  # then the factory says in which types it computes
        state = {name: _like(value, own.get(name)) for name, value in state.items()}
    module.load_state_dict(state, strict=True, assign=not in_memory)
    lacking = _lacking(module, later)
    if lacking is None and cast is not None:
        dtype = getattr(torch, cast)
        module._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
        module.register_forward_pre_hook(_Inputs(dtype), with_kwargs=True)
    return lacking


def _like(tensor: Any, own: Any) -> Any:
    import torch

    real = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
    return tensor.to(own.dtype) if real and own is not None else tensor


def _lacking(module: Any, later: Set[str]) -> str | None:
    """Return a tensor without values: neither the factory has given it some, nor the weights.

    Those named by ``later`` will be.
    """
    tensors = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in tensors:
        if tensor.is_meta and name not in later:
            return f"{name} is not in the checkpoint"
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if not attribute.startswith("_") and any(t.is_meta for t in _within(value)):
                return f"{name}.{attribute}".lstrip(".") + " is not in the checkpoint"
    return None


def _within(value: Any) -> Iterator[Any]:
    """Yield the tensors of an attribute that is one, or holds some."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _within(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _within(part)


class _Inputs:
    """Turns what a model is given into the type that it computes in."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def __call__(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named = {name: self._turned(value) for name, value in kwargs.items()}
        return tuple(self._turned(value) for value in args), named

    def _turned(self, value: Any) -> Any:
        import torch

        real = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self._dtype) if real else value
