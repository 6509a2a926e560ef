"""What a batch is like, kept as JSON, and batches made after it.

A specification is a tree. A tensor's node has its shape, strides, type and device; a container's
has its parts, a list of ``[key, node]``; anything else has its value. A class is kept by name, and
is looked up in what is imported already: reading a specification imports and runs nothing.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.errors import EttError

_PLAIN = (type(None), bool, int, float, str)
_FRACTION = 0.5
"""What made-up tensors of fractions are full of: a probability, and no pole of a logarithm."""

_TOLD = 3

_Node = Mapping[str, Any]


class NoBatch(EttError):
    """A batch cannot be described, or none be made from this description; says why."""


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What a batch is like: tensors and plain values in dicts, lists, tuples and dataclasses."""

    node: _Node

    @classmethod
    def of(cls, batch: Any) -> BatchSpec:
        """Return what this batch is like; raises :class:`NoBatch` where that cannot be said."""
        return cls(_describe(batch, ""))

    @classmethod
    def of_dict(cls, told: _Node) -> BatchSpec:
        """Return the specification that :meth:`as_dict` has told, through JSON, too."""
        return cls(told)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return dict(self.node)

    def make(self) -> Any:
        """Return a new batch like it: whole numbers are 0, fractions 0.5.

        Raises :class:`NoBatch` where it cannot be made, here or at all.
        """
        try:
            return _make(self.node)
        except NoBatch:
            raise
        except Exception as error:  # whatever a damaged one, or a device that is not here, leads to
            raise NoBatch(f"no batch can be made from its specification: {error!r}") from error

    def differences(self, came: BatchSpec) -> str:
        """Return in words how ``came`` differs from it, its first differences; empty for none."""
        found = list(_differences(self.node, came.node, ""))
        more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
        return "; ".join(found[:_TOLD]) + more


def _describe(thing: Any, path: str) -> _Node:
    kind = type(thing)
    if kind in _PLAIN:
        return {"is": "value", "value": thing}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor):
        return _describe_tensor(torch, thing, path)
    if kind is dict:
        if not all(type(key) in _PLAIN for key in thing):
            raise NoBatch(f"{_at(path)} has keys that are neither texts nor numbers")
        return {"is": "dict", "parts": _parts(thing.items(), path)}
    if kind in (list, tuple):
        return {"is": kind.__name__, "parts": _parts(enumerate(thing), path)}
    if _is_namedtuple(kind):
        parts = _parts(zip(kind._fields, thing, strict=True), path)
        return {"is": "namedtuple", "class": _name(kind, path), "parts": parts}
    if dataclasses.is_dataclass(kind):
        fields = [(f.name, getattr(thing, f.name)) for f in dataclasses.fields(kind)]
        return {"is": "dataclass", "class": _name(kind, path), "parts": _parts(fields, path)}
    raise NoBatch(f"{_at(path)} is of {kind.__module__}.{kind.__qualname__}")


def _describe_tensor(torch: Any, tensor: Any, path: str) -> _Node:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise NoBatch(f"{_at(path)} is a tensor of a class of its own, {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise NoBatch(f"{_at(path)} is a tensor without strides ({tensor.layout})")
    return {
        "is": "tensor",
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": tensor.device.type,  # which one of several is each rank's own matter
        "requires_grad": tensor.requires_grad,
    }


def _parts(items: Iterable[tuple[Any, Any]], path: str) -> list[Any]:
    return [[key, _describe(part, _below(path, key))] for key, part in items]


def _make(node: _Node) -> Any:
    kind = node["is"]
    if kind == "value":
        return node["value"]
    if kind == "tensor":
        return _make_tensor(node)
    parts = [(key, _make(part)) for key, part in node["parts"]]
    if kind == "dict":
        return dict(parts)
    values = [value for _, value in parts]
    if kind == "list":
        return values
    if kind == "tuple":
        return tuple(values)
    cls = _find(node["class"])
    if kind == "namedtuple" and _is_namedtuple(cls) and len(values) == len(cls._fields):
        return tuple.__new__(cls, values)
    if kind == "dataclass" and dataclasses.is_dataclass(cls):
        made: Any = object.__new__(cls)  # type: ignore[arg-type]  # what the class does at its making is not to be run
        for name, value in parts:
            object.__setattr__(made, name, value)
        return made
    raise NoBatch(f"{node.get('class')} is no {kind} here")


def _make_tensor(node: _Node) -> Any:
    import torch

    dtype = getattr(torch, node["dtype"])
    tensor = torch.empty_strided(node["shape"], node["stride"], dtype=dtype, device=node["device"])
    # Flat, since elements may share memory: fill_ would refuse an expanded tensor.
    flat = torch.empty(0, dtype=dtype, device=node["device"]).set_(tensor.untyped_storage())
    flat.fill_(_FRACTION if dtype.is_floating_point or dtype.is_complex else 0)
    return tensor.requires_grad_(node["requires_grad"])


def _differences(expected: _Node, came: _Node, path: str) -> Iterator[str]:
    if expected == came:
        return
    if expected["is"] != came["is"] or expected.get("class") != came.get("class"):
        yield f"{_at(path)}: a {_kind(expected)} was expected, a {_kind(came)} came"
    elif "parts" not in expected:
        for fact in expected:
            if expected[fact] != came[fact]:
                told = _fact(expected[fact]), _fact(came[fact])
                yield f"{_at(path)}: {fact} {told[0]} was expected, {told[1]} came"
    elif [key for key, _ in expected["parts"]] != [key for key, _ in came["parts"]]:
        keys = [", ".join(str(key) for key, _ in node["parts"]) for node in (expected, came)]
        yield f"{_at(path)}: parts {keys[0]} were expected, {keys[1]} came"
    else:
        for (key, one), (_, other) in zip(expected["parts"], came["parts"], strict=True):
            yield from _differences(one, other, _below(path, key))


def _find(name: str) -> Any:
    """Return a class by its name, as :func:`_name` tells it.

    Plain dictionaries are asked alone: a module's own ``__getattr__`` could import others.
    """
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if not isinstance(found, type):
        raise NoBatch(f"class {name} is not there")
    return found


def _name(cls: type, path: str) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        if _find(name) is cls:
            return name
    except NoBatch:
        pass
    raise NoBatch(f"{_at(path)} is of a class that is not found by its name, {name}")


def _is_namedtuple(cls: Any) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _at(path: str) -> str:
    return path or "the batch"


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _kind(node: _Node) -> str:
    return str(node.get("class") or node["is"])


def _fact(fact: Any) -> str:
    text = str(tuple(fact)) if isinstance(fact, list) else str(fact)
    return text if len(text) <= 80 else f"{text[:80]}…"
