"""A checkpoint's golden batch: inputs, and the scores that the model had for them when saved.

It is a file of the checkpoint, :data:`GOLDEN`, in the safetensors format. Its tensors are named by
what they are::

    inputs.0, inputs.1, …     the model's inputs by position, or
    inputs.<name>, …          by name
    scores.0, … | scores.<name>, …    what it returned, in the same way; scores.0.1, … within one
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GOLDEN = "golden.safetensors"
INPUTS = "inputs"
SCORES = "scores"


def flatten(prefix: str, values: Any) -> dict[str, Any]:
    """Return a value, a tuple or list of them, or a mapping under the names that they have here."""
    if isinstance(values, Mapping):
        return {f"{prefix}.{name}": value for name, value in values.items()}
    found = list(values) if isinstance(values, (tuple, list)) else [values]
    return {f"{prefix}.{number}": value for number, value in enumerate(found)}


def flatten_all(prefix: str, values: Any) -> dict[str, Any]:
    """Return the same of values that may hold further ones; None is left out."""
    found: dict[str, Any] = {}
    for name, value in flatten(prefix, values).items():
        if isinstance(value, (Mapping, tuple, list)):
            found |= flatten_all(name, value)
        elif value is not None:
            found[name] = value
    return found


def gather(prefix: str, named: Mapping[str, Any]) -> tuple[Any, ...] | dict[str, Any]:
    """Return what :func:`flatten` has named: a tuple, also of a single value, or a dictionary."""
    own = {name[len(prefix) + 1 :]: v for name, v in named.items() if name.startswith(f"{prefix}.")}
    if all(name.isdecimal() for name in own):
        return tuple(own[name] for name in sorted(own, key=int))
    return own
