"""The model as a program of ``torch.export``: a server runs it without the model's code."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

from airflow_ett.errors import PublishError
from airflow_ett.publish.golden import compare
from airflow_ett.publish.usercode import as_call, named_scores


def export(module: Any, inputs: Any, path: Path, tolerance: float) -> dict[str, Any]:
    """Write a model's program, traced with a batch, where the model allows it.

    The program takes batches of any number of rows, if the model does. It is read back, and must
    score the batch as the model does, within ``tolerance``.

    Returns ``{"file", "rows"}``, ``rows`` being ``"any"`` or the one number that it takes, or
    ``{"refused"}``, why there is none; then nothing is written.
    """
    import torch

    if inputs is None:
        return {"refused": "there is no batch to trace the model with"}
    if any(isinstance(part, torch.ao.nn.quantized.dynamic.Linear) for part in module.modules()):
        return {"refused": "torch.export cannot export layers that compute in int8"}
    args, kwargs = as_call(inputs)
    rows = len(next(iter([*args, *kwargs.values()])))
    try:
        program, free = _traced(module, args, kwargs, rows)
        torch.export.save(program, path)
        read = torch.export.load(path).module()
        with torch.no_grad():
            wanted, found = (named_scores(m(*args, **kwargs)) for m in (module, read))
        if (difference := compare(wanted, found, math.inf)) > tolerance:
            raise PublishError(f"its scores differ by {difference:.3g} of the model's largest one")
    except Exception as error:  # whatever the model's code provokes in the compiler
        path.unlink(missing_ok=True)
        return {"refused": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"file": path.name, "rows": "any" if free else rows}


def _traced(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int
) -> tuple[Any, bool]:
    """Return the program, and whether the number of rows is free in it."""
    import torch

    try:
        named = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        free = _shapes(dict(named), rows, torch.export.Dim("rows", min=1))
        return torch.export.export(module, args, kwargs, dynamic_shapes=free), True
    except Exception:  # the model, or a batch of one row, fixes it
        return torch.export.export(module, args, kwargs), False


def _shapes(values: Any, rows: int, free: Any) -> Any:
    """Return for each tensor that its first dimension is free, if that is the batch's rows."""
    if isinstance(values, dict):
        return {name: _shapes(value, rows, free) for name, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_shapes(value, rows, free) for value in values)
    return {0: free} if values.ndim and len(values) == rows else None
