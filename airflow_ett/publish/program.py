"""The model as a program of ``torch.export``: a server runs it without the model's code."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping
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
    ``{"refused"}``, why there is none; then nothing is written. Raises what the model raises, and
    ``OSError`` where there is no room for it.
    """
    import torch

    if inputs is None:
        return {"refused": "there is no batch to trace the model with"}
    if any(isinstance(part, torch.ao.nn.quantized.dynamic.Linear) for part in module.modules()):
        return {"refused": "torch.export cannot export layers that compute in int8"}
    args, kwargs = as_call(inputs)
    with torch.no_grad():
        wanted = named_scores(module(*args, **kwargs))
    rows = next((len(scored) for scored in wanted.values() if scored.ndim), None)
    _require_room(path, module)
    try:
        program, free = _traced(module, args, kwargs, rows)
        torch.export.save(program, path)
        read = torch.export.load(path).module()
        with torch.no_grad():
            found = named_scores(read(*args, **kwargs))
        if (difference := compare(wanted, found, math.inf)) > tolerance:
            raise PublishError(f"its scores differ by {difference:.3g} of the model's largest one")
    except Exception as error:  # whatever the model's code provokes in the compiler
        path.unlink(missing_ok=True)
        return {"refused": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"file": path.name, "rows": "any" if free else rows}


def _require_room(path: Path, module: Any) -> None:
    """Raise ``OSError`` for a full disk, which torch tells as any other error."""
    size = sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()])
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))


def _traced(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int | None
) -> tuple[Any, bool]:
    """Return the program, and whether the number of rows is free in it."""
    import torch

    inputs = [*args, *kwargs.values()]
    lengths = {len(value): torch.export.Dim(f"rows{len(value)}") for value in inputs if value.ndim}
    alone = {rows: lengths[rows]} if rows in lengths else {}
    for free in (lengths, alone):  # not all need be a batch's: a table may be among the inputs
        try:
            named = inspect.signature(module.forward).bind(*args, **kwargs).arguments
            shapes = _shapes(dict(named), free)
            program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
            return program, rows in free
        except Exception:  # the model, or a batch of one row, fixes it
            continue
    return torch.export.export(module, args, kwargs), False


def _shapes(values: Any, free: Mapping[int, Any]) -> Any:
    """Return for each tensor that its first dimension is free, if those of its length are."""
    if isinstance(values, dict):
        return {name: _shapes(value, free) for name, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_shapes(value, free) for value in values)
    return {0: free[len(values)]} if values.ndim and len(values) in free else None
