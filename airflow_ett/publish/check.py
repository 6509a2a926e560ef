"""Tries a snapshot in a process of its own, as a server would load it.

Run as ``python -m airflow_ett.publish.check``; the outcome is a JSON file: ``{"ok": {...}}`` with
what goes into the manifest, or ``{"error": "..."}``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints.golden import GOLDEN
from airflow_ett.errors import EttError, PublishError
from airflow_ett.publish.golden import compare, read_golden
from airflow_ett.publish.loading import load_weights
from airflow_ett.publish.program import export
from airflow_ett.publish.usercode import (
    as_call,
    code_version,
    load_object,
    named_inputs,
    named_scores,
)

_EXAMPLE = "example_batch"
_LONGEST = 4000
"""Characters of an error: torch names every weight that is missing, also a hundred thousand."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Try the snapshot that the arguments name and write the outcome."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--weights", type=Path, required=True)
    add("--model", required=True, help="the factory")
    add("--transforms", default="", help="with commas")
    add("--tolerance", type=float, required=True, help="of the largest absolute score")
    add("--batch", help="the function that returns the inputs")
    add("--golden", type=Path, help="inputs, and the trainer's scores for them")
    add("--program", type=Path, help="where to write what torch.export makes of the model")
    add("--result", type=Path, required=True)
    options = vars(parser.parse_args(arguments))
    result: Path = options.pop("result")
    outcome: dict[str, Any]
    try:
        outcome = {"ok": check(**options)}
    except Exception as error:  # the factory's code is the user's
        words = " ".join(str(error).split())  # torch's run over several lines
        message = textwrap.shorten(words, _LONGEST, placeholder=" …")
        kind = "" if isinstance(error, EttError) else f"{type(error).__name__}: "
        outcome = {"error": kind + message}
    result.write_text(json.dumps(outcome))


def check(
    weights: Path,
    model: str,
    transforms: str,
    tolerance: float,
    batch: str | None = None,
    golden: Path | None = None,
    program: Path | None = None,
) -> dict[str, Any]:
    """Load the weights into the factory's model and score a batch.

    The batch is the one named, else the trainer's, else ``example_batch`` of the factory's module,
    else none. Only the trainer's has scores to compare with.

    Returns what the manifest says of it, see :func:`airflow_ett.publish.trial.try_snapshot`. Raises
    what the model raises, and :class:`PublishError` for scores that are not finite, not of the
    batch's number of rows, or not the trainer's.
    """
    loaded = load_weights(weights, model, tuple(filter(None, transforms.split(","))))
    tried: dict[str, Any] = {"inputs": None, "shapes": None, "in_memory": loaded.in_memory}
    told = {"check": tried, "code": code_version(model)}
    source, inputs, wanted = _batch(model, batch, golden)
    if source is not None:
        scores = _score(loaded.module, inputs)
        if wanted is None:
            _require_rows(scores, inputs)
        tried["inputs"] = source
        tried["shapes"] = [list(scored.shape) for scored in scores.values()]
        if wanted is not None:
            tried["difference"] = compare(wanted, scores, tolerance)
            tried["tolerance"] = tolerance
    if program is not None:
        told["program"] = export(loaded.module, inputs, program, tolerance)
    return told


def _batch(
    model: str, batch: str | None, golden: Path | None
) -> tuple[str | None, Any, Mapping[str, Any] | None]:
    """Return where the inputs are from, the inputs, and the scores that they had in training."""
    if batch is None and golden is not None:
        recorded = read_golden(golden)
        return f"{GOLDEN} of the checkpoint", recorded.inputs, recorded.scores
    source = batch or _example_of(model)
    return source, (load_object(source)() if source else None), None


def _example_of(model: str) -> str | None:
    module = model.partition(":")[0]
    has_example = hasattr(importlib.import_module(module), _EXAMPLE)
    return f"{module}:{_EXAMPLE}" if has_example else None


def _score(module: Any, inputs: Any) -> dict[str, Any]:
    import torch

    named_inputs(inputs)  # raises what is no batch
    args, kwargs = as_call(inputs)
    with torch.no_grad():
        scores = named_scores(module(*args, **kwargs))
    for name, scored in scores.items():
        if not bool(scored.isfinite().all()):
            raise PublishError(f"some scores are NaN or infinite ({name})")
    return scores


def _require_rows(scores: Mapping[str, Any], inputs: Any) -> None:
    """Raise unless each output has as many rows as one of the inputs has: ids, or their offsets."""
    rows = {len(value) for value in named_inputs(inputs).values() if value.ndim}
    for name, scored in scores.items():
        if not rows.intersection(scored.shape[:1]):
            shape, told = tuple(scored.shape), " or ".join(map(str, sorted(rows)))
            raise PublishError(f"{told} rows gave an output of shape {shape} ({name})")


if __name__ == "__main__":
    main()
