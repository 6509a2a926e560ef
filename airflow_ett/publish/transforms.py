"""Weights as bytes: the ``int8`` snapshot, a quarter of float32.

Each floating tensor of two dimensions becomes two, row by row: ``<name>`` in int8 and
``<name>.scale`` in float32, one for each row, so that ``int8 * scale`` is the value again, off by
half a scale at most. The scale is the row's greatest absolute value by 127. All else stays as it
is.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from airflow_ett.errors import PublishError
from airflow_ett.publish.layout import SLAB, Tensor, WeightsFile

_GREATEST = 127
_LEAST_SCALE = torch.finfo(torch.float32).tiny


def quantised(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that :func:`quantise` makes of these.

    Raises :class:`PublishError` where the name of a scale is a tensor's already.
    """
    wanted: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        scale = f"{name}.scale"
        if scale in tensors:  # then nobody could tell what it is
            raise PublishError(f"int8 needs the name {scale}, which is one of the model's tensors")
        if _shrinks(tensor):
            wanted[name] = Tensor(torch.int8, tensor.shape)
            wanted[scale] = Tensor(torch.float32, tensor.shape[:1])
        else:
            wanted[name] = tensor
    return wanted


def quantise(source: WeightsFile, target: WeightsFile) -> None:
    """Write all tensors of a file into one whose tensors are :func:`quantised` of them."""
    for name, tensor in source.tensors.items():
        if _shrinks(tensor):
            _quantise(name, source, target)
        else:
            _copy(name, source, target)


def _shrinks(tensor: Tensor) -> bool:
    return len(tensor.shape) == 2 and tensor.bytes > 0 and bool(tensor.dtype.is_floating_point)


def _copy(name: str, source: WeightsFile, target: WeightsFile) -> None:
    tensor = source.tensors[name]
    count = tensor.bytes // tensor.dtype.itemsize
    step = SLAB // tensor.dtype.itemsize
    for begin in range(0, count, step):
        target.write(name, begin, source.read(name, begin, min(step, count - begin)))


def _quantise(name: str, source: WeightsFile, target: WeightsFile) -> None:
    rows, columns = source.tensors[name].shape
    step = max(1, SLAB // (columns * torch.float32.itemsize))
    for begin in range(0, rows, step):
        count = min(step, rows - begin)
        values = source.read(name, begin * columns, count * columns).float().view(count, columns)
        least, greatest = values.aminmax(dim=1)
        scale = torch.maximum(greatest, -least).div_(_GREATEST).clamp_(min=_LEAST_SCALE)
        if not bool(scale.isfinite().all()):
            raise PublishError(f"{name} has values that are too large for float32, and so for int8")
        target.write(f"{name}.scale", begin, scale)
        whole = values.div_(scale[:, None]).round_().clamp_(-_GREATEST, _GREATEST)
        target.write(name, begin * columns, whole.to(torch.int8).view(-1))
