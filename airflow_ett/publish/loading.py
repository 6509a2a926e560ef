"""A published version as a model that scores: what a server calls, and the publisher's own trial.

The weights are mapped from the file, not copied, wherever the model lets them be: they take no
memory of the process but what the kernel may drop again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from airflow_ett.errors import PublishError
from airflow_ett.publish.registries.protocol import MANIFEST_FILE, WEIGHTS_FILE
from airflow_ett.publish.request import CASTS, INT8
from airflow_ett.publish.usercode import load_object

_SCALE = ".scale"


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
    stored = _open(weights)
    quantised = INT8 in transforms
    try:
        module = _built(make, on_meta=True)
        problem = _fill(module, stored, cast, quantised=quantised)
    except Exception as error:  # what a factory does need not work without values
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    if problem is not None:
        module = _built(make, on_meta=False)
        _fill(module, stored, cast, quantised=quantised)
    if quantised:
        _quantise(module, stored)
    return Loaded(module.requires_grad_(False).eval(), problem)


def _open(weights: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(weights, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping


def _built(make: Callable[[], Any], *, on_meta: bool) -> Any:
    import torch

    with torch.device("meta" if on_meta else "cpu"):
        module = make()
    if not isinstance(module, torch.nn.Module):
        raise PublishError(f"the factory returned {type(module).__name__}, not a torch.nn.Module")
    return module


def _fill(
    module: Any, stored: Mapping[str, Any], cast: str | None, *, quantised: bool
) -> str | None:
    """Give a model its weights; return what it is left without, if anything."""
    import torch

    own = module.state_dict()
    state = dict(_restored(module, stored) if quantised else stored)
    if cast is None:  # then the factory says in which types it computes
        state = {name: _like(tensor, own.get(name)) for name, tensor in state.items()}
    module.load_state_dict(state, strict=True, assign=True)
    lacking = _lacking(module, {name for name, tensor in state.items() if tensor.is_meta})
    if lacking is None and cast is not None:
        dtype = getattr(torch, cast)
        module.to(dtype)
        module.register_forward_pre_hook(_Inputs(dtype), with_kwargs=True)
    return lacking


def _like(tensor: Any, own: Any) -> Any:
    fits = own is None or own.dtype == tensor.dtype or not tensor.is_floating_point()
    return tensor if fits else tensor.to(own.dtype)


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


def _restored(module: Any, stored: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the weights of an int8 file in their own type; those that stay int8 without values."""
    import torch

    linear = {f"{name}.weight" for name, _ in _linears(module)}
    for name, tensor in stored.items():
        if name.endswith(_SCALE) and _is_quantised(stored, name[: -len(_SCALE)]):
            continue
        if not _is_quantised(stored, name):
            yield name, tensor
        elif name in linear:
            yield name, torch.empty(tensor.shape, device="meta")
        else:
            yield name, tensor.float().mul_(stored[name + _SCALE].reshape(-1, 1))


def _is_quantised(stored: Mapping[str, Any], name: str) -> bool:
    import torch

    tensor = stored.get(name)
    return name + _SCALE in stored and tensor is not None and tensor.dtype == torch.int8


def _linears(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers that can compute in int8. Others derive from Linear and use its weight."""
    import torch

    for name, part in module.named_modules(remove_duplicate=False):
        if name and type(part) is torch.nn.Linear and part.weight.dtype == torch.float32:
            yield name, part


def _quantise(module: Any, stored: Mapping[str, Any]) -> None:
    for name, part in list(_linears(module)):
        weight = f"{name}.weight"
        if _is_quantised(stored, weight):
            parent, _, attribute = name.rpartition(".")
            layer = _int8_linear(part, stored[weight], stored[weight + _SCALE])
            setattr(module.get_submodule(parent), attribute, layer)


def _int8_linear(layer: Any, weight: Any, scale: Any) -> Any:
    import torch
    from torch.ao.nn.quantized import dynamic

    rows = weight.shape[0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
        packed = torch._make_per_channel_quantized_tensor(
            weight, scale.reshape(-1).double(), torch.zeros(rows, dtype=torch.long), 0
        )
        made = dynamic.Linear(layer.in_features, layer.out_features, bias_=layer.bias is not None)
        made.set_weight_bias(packed, layer.bias)
    return made
