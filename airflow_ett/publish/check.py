"""Tries a snapshot in a process of its own, as a server would load it.

Run as ``python -m airflow_ett.publish.check``; the outcome is a JSON file: ``{"ok": {...}}`` with
what was tried, or ``{"error": "..."}``.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from airflow_ett.errors import PublishError

_EXAMPLE = "example_batch"


def main(arguments: Sequence[str] | None = None) -> None:
    """Try the snapshot that the arguments name and write the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--golden")
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args(arguments)
    outcome: dict[str, Any]
    try:
        outcome = {"ok": check(options.weights, options.model, options.golden)}
    except Exception as error:  # the factory's code is the user's
        message = " ".join(str(error).split())  # torch's run over several lines
        outcome = {"error": f"{type(error).__name__}: {message}"}
    options.result.write_text(json.dumps(outcome))


def check(weights: Path, model: str, golden: str | None) -> dict[str, Any]:
    """Load the weights into the factory's model and score a batch.

    Returns what was tried: ``inputs`` (where they came from) and the outputs' ``shapes``; both None
    where there is no batch. Raises what the model raises, and :class:`PublishError` for values that
    are not finite or whose number of rows is not the batch's.
    """
    module = load_object(model)()
    module.load_state_dict(load_file(weights), strict=True)
    module.eval()
    source = golden or _example_of(model)
    if source is None:
        return {"inputs": None, "shapes": None}
    inputs = load_object(source)()
    rows = _tensors(inputs)[0].shape[0]
    with torch.no_grad():
        scores = _tensors(_call(module, inputs))
    for scored in scores:
        if scored.ndim == 0 or scored.shape[0] != rows:
            raise PublishError(f"{rows} rows gave an output of shape {tuple(scored.shape)}")
        if not bool(scored.isfinite().all()):
            raise PublishError("some scores are NaN or infinite")
    return {"inputs": source, "shapes": [list(scored.shape) for scored in scores]}


def load_object(path: str) -> Any:
    """Return the object that ``pkg.module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _example_of(model: str) -> str | None:
    module = model.partition(":")[0]
    has_example = hasattr(importlib.import_module(module), _EXAMPLE)
    return f"{module}:{_EXAMPLE}" if has_example else None


def _call(module: Any, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


def _tensors(values: Any) -> list[Any]:
    if isinstance(values, Mapping):
        values = tuple(values.values())
    found = list(values) if isinstance(values, (tuple, list)) else [values]
    if not found or not all(isinstance(value, torch.Tensor) for value in found):
        raise PublishError(f"expected tensors, not {type(values).__name__}")
    return found


if __name__ == "__main__":
    main()
