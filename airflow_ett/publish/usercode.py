"""Others' code, by name: the model's factory, functions that return batches, and how to call it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints.golden import INPUTS, SCORES, flatten, flatten_all
from airflow_ett.errors import PublishError


def load_object(path: str) -> Any:
    """Return the object that ``pkg.module:name`` names; raises what the import raises."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def as_call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a batch as a model's arguments: a mapping is keywords, a tuple or list several."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}


def named_scores(returned: Any) -> dict[str, Any]:
    """Return what a model returned, by the names of a golden batch's scores.

    Raises :class:`PublishError` where it is not made of tensors.
    """
    return _tensors(SCORES, flatten_all(SCORES, returned))


def named_inputs(batch: Any) -> dict[str, Any]:
    """Return a batch by the names of a golden batch's inputs; raises as above."""
    return _tensors(INPUTS, flatten(INPUTS, batch))


def _tensors(prefix: str, named: dict[str, Any]) -> dict[str, Any]:
    import torch

    strange = [type(v).__name__ for v in named.values() if not isinstance(v, torch.Tensor)]
    if strange or not named:
        raise PublishError(f"{prefix}: expected tensors, not {(strange or ['nothing'])[0]}")
    return named


def code_version(factory: str) -> dict[str, Any]:
    """Return which code a factory's module is: its file's SHA-256, and who distributes it, if any.

    ``distribution`` is a list: several may share a package.
    """
    name = factory.partition(":")[0]
    file = importlib.import_module(name).__file__
    owners = importlib.metadata.packages_distributions().get(name.partition(".")[0], [])
    return {
        "module": name,
        "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None,
        "distribution": [
            f"{owner} {importlib.metadata.version(owner)}" for owner in sorted(set(owners))
        ],
    }
