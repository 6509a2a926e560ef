"""What the trainer's own model scored for a batch, and how far a snapshot's scores are from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from airflow_ett.checkpoints.golden import INPUTS, SCORES, gather
from airflow_ett.errors import PublishError
from airflow_ett.publish.request import INT8

_EXACT = 1e-4
_HALF = 2e-2
_INT8 = 0.1


class Golden(NamedTuple):
    """A batch, and the scores that the trainer had for it, under their names."""

    inputs: tuple[Any, ...] | dict[str, Any]
    scores: Mapping[str, Any]


def tolerance_after(cast: str | None) -> float:
    """Return by how much scores may differ after a transform, of the largest absolute score."""
    if cast == INT8:
        return _INT8
    return _HALF if cast in ("bfloat16", "float16") else _EXACT


def read_golden(path: Path) -> Golden:
    """Read what a checkpoint's golden file holds; raise :class:`PublishError` where it is none."""
    from safetensors.torch import load_file

    try:
        named = load_file(path)
    except Exception as error:  # of several libraries' own kinds
        raise PublishError(f"the checkpoint's {path.name} cannot be read: {error}") from error
    scores = {name: tensor for name, tensor in named.items() if name.startswith(f"{SCORES}.")}
    inputs = gather(INPUTS, named)
    if not inputs or not scores:
        raise PublishError(f"the checkpoint's {path.name} holds no inputs, or no scores for them")
    return Golden(inputs, scores)


def compare(wanted: Mapping[str, Any], found: Mapping[str, Any], tolerance: float) -> float:
    """Return the greatest difference of two sets of scores, of the largest absolute score wanted.

    Raises :class:`PublishError` that says what differs where it is more than ``tolerance``, where
    names or shapes differ, and where a wanted score is not finite.
    """
    if wanted.keys() != found.keys():
        raise PublishError(f"the model returns {sorted(found)}, in training {sorted(wanted)}")
    return max(_difference(name, wanted[name], found[name], tolerance) for name in wanted)


def _difference(name: str, wanted: Any, found: Any, tolerance: float) -> float:
    if wanted.shape != found.shape:
        shapes = f"{list(found.shape)}, in training {list(wanted.shape)}"
        raise PublishError(f"{name} has the shape {shapes}")
    if wanted.numel() == 0:
        return 0.0
    ours, theirs = _numbers(found), _numbers(wanted)
    if not bool(theirs.isfinite().all()):
        raise PublishError(f"{name}: some scores in training were NaN or infinite")
    difference, largest = (ours - theirs).abs(), float(theirs.abs().max())
    at = int(difference.argmax())
    greatest = float(difference[at])
    relative = greatest / largest if largest else greatest and math.inf
    if not relative <= tolerance:  # not a number, perhaps
        row = at * wanted.shape[0] // len(theirs) if wanted.ndim else 0
        raise PublishError(
            f"{name} differs from the trainer's by up to {greatest:.3g}, in row {row}: "
            f"{float(ours[at]):.6g} here, {float(theirs[at]):.6g} in training. "
            f"Allowed are {tolerance:g} of the largest score, {largest:.3g}. Either the factory is "
            "not the training's model, or a greater tolerance is needed"
        )
    return relative


def _numbers(values: Any) -> Any:
    import torch

    parts = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    return parts.double().reshape(-1)
