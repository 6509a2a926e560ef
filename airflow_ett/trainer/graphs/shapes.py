"""Batches whose size changes, without a graph for each size.

A batch is a tensor, or dicts, lists, tuples, NamedTuples and dataclasses of batches. Whatever else
is in it is left as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from airflow_ett.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

_Batch = TypeVar("_Batch")


class Padded(NamedTuple):
    """A batch of a fixed size: its first ``rows`` rows are real, and there ``mask`` is True."""

    batch: Any
    rows: int
    mask: Tensor


def mark_dynamic(batch: _Batch, dim: int = 0) -> _Batch:
    """Have one graph compiled for all sizes that dimension ``dim`` of the batch's tensors takes.

    Called on each batch, the first one included, where it is as the compiled code gets it: a copy
    or a slice of a marked tensor is not marked. Sizes 0 and 1 have graphs of their own all the
    same. Code that needs one certain size gets a graph for each as before. Returns the batch.
    """
    import torch._dynamo

    for tensor in _tensors(batch):
        if -tensor.dim() <= dim < tensor.dim():
            torch._dynamo.maybe_mark_dynamic(tensor, dim % tensor.dim())
    return batch


def pad_to(batch: Any, size: int) -> Padded:
    """Return the batch with zeros as further rows of each tensor, so that it has ``size`` rows.

    The loss must leave them out: ``(losses * mask).sum() / mask.sum()``. They count in the
    statistics of a batch normalisation. Tensors without dimensions stay as they are.

    Raises :class:`ConfigurationError` where the batch is longer, has no tensor with rows, or has
    tensors that differ in how many they have.
    """
    import torch
    from torch.nn.functional import pad

    with_rows = [tensor for tensor in _tensors(batch) if tensor.dim()]
    lengths = sorted({len(tensor) for tensor in with_rows})
    if len(lengths) != 1:
        told = ", ".join(map(str, lengths))
        problem = f"its tensors have different numbers of rows: {told}" if told else "has no rows"
        raise ConfigurationError("batch", problem)
    rows = lengths[0]
    if rows > size:
        raise ConfigurationError("size", f"is {size}, but the batch has {rows} rows")

    def padded(tensor: Tensor) -> Tensor:
        if not tensor.dim():
            return tensor
        return pad(tensor, (0, 0) * (tensor.dim() - 1) + (0, size - rows))

    mask = torch.arange(size, device=with_rows[0].device) < rows
    return Padded(batch if rows == size else _changed(batch, padded), rows, mask)


def _tensors(batch: Any) -> Iterator[Tensor]:
    from torch import Tensor

    if isinstance(batch, Tensor):
        yield batch
    else:
        for _, part in _parts(batch):
            yield from _tensors(part)


def _changed(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a batch like this one, whose tensors are changed."""
    from torch import Tensor

    if isinstance(batch, Tensor):
        return change(batch)
    parts = [(key, _changed(part, change)) for key, part in _parts(batch)]
    if not parts:
        return batch
    if isinstance(batch, tuple):
        values = [part for _, part in parts]
        return batch._make(values) if hasattr(batch, "_make") else tuple(values)
    made = copy.copy(batch)
    for key, part in parts:
        if is_dataclass(made):
            object.__setattr__(made, key, part)  # a frozen one, too
        else:
            made[key] = part
    return made


def _parts(batch: Any) -> Iterable[tuple[Any, Any]]:
    """Return what the batch consists of, by key, by index, by name."""
    if isinstance(batch, MutableMapping):
        return batch.items()
    if isinstance(batch, list | tuple):
        return enumerate(batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        return [(field.name, getattr(batch, field.name)) for field in fields(batch)]
    return ()
