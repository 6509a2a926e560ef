"""A safetensors file that is written piece by piece: the header first, then values in any order.

::

    8 bytes          length of the header, little endian
    the header       JSON: name -> dtype, shape, where its bytes lie in the data; padded with spaces
    the data         the tensors' values, row by row, without gaps

The library writes only what is in memory as a whole, so this is our own writer; what it writes is
read by the library. Tensors of greater elements come first, so that each lies aligned.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from airflow_ett.errors import PublishError

SLAB = 32 << 20
"""How many bytes of a tensor are looked at, changed or written at a time."""

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Tensor(NamedTuple):
    """What a file says of a tensor."""

    dtype: Any
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of its values."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


class WeightsFile:
    """A new file with room for ``tensors``, to be filled and read back, and closed.

    Takes its room on the disk at once, so that a full one is told before the work is done. Raises
    :class:`PublishError` for a dtype that such files do not know, and ``OSError``.
    """

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)
        header, self._begins = _header(self.tensors)
        size = len(header) + sum(tensor.bytes for tensor in tensors.values())
        self._file = path.open("w+b")
        try:
            os.posix_fallocate(self._file.fileno(), 0, size)
            self._file.write(header)
        except OSError as error:
            self._file.close()
            needed = f"{os.strerror(error.errno or 0)} ({size} bytes are needed)"
            raise OSError(error.errno, needed, str(path)) from error

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def read(self, name: str, begin: int, count: int) -> Any:
        """Return values of a tensor, counted row by row from its first, as a flat tensor."""
        values = torch.empty(count, dtype=self.tensors[name].dtype)
        self._file.seek(self._begins[name] + begin * values.itemsize)
        self._file.readinto(_raw(values))
        return values

    def write(self, name: str, begin: int, values: Any) -> None:
        """Write a flat tensor over the values from ``begin`` on."""
        self._file.seek(self._begins[name] + begin * values.itemsize)
        self._file.write(_raw(values.contiguous()))

    def put(self, name: str, values: Any, offsets: Sequence[int]) -> None:
        """Write a rectangle of values at its place in the tensor."""
        shape = self.tensors[name].shape
        begin, count = _span(values.shape, offsets, shape)
        if count == values.numel():
            flat = values.reshape(-1)
        else:  # others' values lie in between
            flat = self.read(name, begin, count)
            flat.as_strided(values.shape, _strides(shape)).copy_(values)
        self.write(name, begin, flat)


def pieces(
    values: Any, offsets: Sequence[int], shape: Sequence[int]
) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Cut a rectangle of a tensor of ``shape`` until each piece spans at most a slab of it.

    Yields the pieces that have values, with their offsets in the tensor.
    """
    if values.numel() == 0:
        return
    _, count = _span(values.shape, offsets, shape)
    if count * values.itemsize <= SLAB:
        yield values, tuple(offsets)
        return
    axis = next(axis for axis, size in enumerate(values.shape) if size > 1)
    half = values.shape[axis] // 2
    yield from pieces(values.narrow(axis, 0, half), offsets, shape)
    rest = [offset + half * (number == axis) for number, offset in enumerate(offsets)]
    yield from pieces(values.narrow(axis, half, values.shape[axis] - half), rest, shape)


def _header(tensors: Mapping[str, Tensor]) -> tuple[bytes, dict[str, int]]:
    """Return the file's beginning, and where in the file each tensor's values begin."""
    fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begins, end = {}, 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name)):
        dtype, shape = tensors[name]
        if dtype not in _DTYPES:
            raise PublishError(f"{name} is of {dtype}, which safetensors files do not know")
        begins[name], end = end, end + tensors[name].bytes
        fields[name] = {
            "dtype": _DTYPES[dtype],
            "shape": list(shape),
            "data_offsets": [begins[name], end],
        }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return header, {name: len(header) + begin for name, begin in begins.items()}


def _span(sizes: Sequence[int], offsets: Sequence[int], shape: Sequence[int]) -> tuple[int, int]:
    """Return the first value of a rectangle in its tensor, and how many there are to its last."""
    strides = _strides(shape)
    begin = sum(offset * stride for offset, stride in zip(offsets, strides, strict=True))
    return begin, 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _raw(values: Any) -> Any:
    """Return a flat tensor's bytes, not copied."""
    return values.view(torch.uint8).numpy()
