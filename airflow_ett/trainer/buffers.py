"""Copies of states in the memory of the CPU, into buffers that the next copies use again.

Imported only where torch is in use.
"""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Container
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

SMALL = 1 << 16
"""Bytes that are not worth a thread, nor to be pinned: to copy them takes microseconds."""


class Pair(NamedTuple):
    """The memory of tensors, byte by byte, and the buffer it is still to be copied to."""

    buffer: torch.Tensor
    source: torch.Tensor


class Buffers:
    """One buffer for each storage of a state; tensors that share one share it in the copy, too.

    ``pinned`` is for GPUs, which copy faster into memory that stays where it is.
    """

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}

    def copy(self, state: dict[str, Any], put_off: Container[int]) -> tuple[Any, list[Pair]]:
        """Return a copy of ``state``, and what of it is still to be copied.

        That are the storages whose places are in ``put_off``, so far as there are buffers for them:
        all others are copied now. What was copied before is overwritten. Buffers that the state has
        no use for are freed.
        """
        copying = _Copying(self._buffers, put_off, pinned=self._pinned)
        with torch.no_grad():
            copied = copying.thing(state)
        self._buffers = copying.buffers
        for device in copying.devices:
            torch.cuda.synchronize(device)
        return copied, copying.pairs

    def close(self) -> None:
        """Free those that no copy uses any more."""
        self._buffers.clear()


def place_of(tensor: torch.Tensor) -> int:
    """Return what tells the tensor's storage from any other that is in use."""
    place: int = tensor.untyped_storage().data_ptr()
    return place


class _Copying:
    """One copy of a state. ``buffers`` are all it uses, by the place and size of their storages."""

    def __init__(
        self, known: dict[tuple[int, int], torch.Tensor], put_off: Container[int], *, pinned: bool
    ) -> None:
        self._known = known
        self._put_off = put_off
        self._pinned = pinned
        self.buffers: dict[tuple[int, int], torch.Tensor] = {}
        self.pairs: list[Pair] = []
        self.devices: set[torch.device] = set()
        """The GPUs that have been told to copy."""

    def thing(self, thing: Any) -> Any:
        kind = type(thing)
        if isinstance(thing, torch.Tensor):
            return self._tensor(thing)
        if kind in (dict, OrderedDict):
            return kind((key, self.thing(value)) for key, value in thing.items())
        if kind in (list, tuple):
            return kind(self.thing(part) for part in thing)
        return copy.deepcopy(thing)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        if is_traceable_wrapper_subclass(tensor):  # a DTensor, or another that is made of some
            names, how = tensor.__tensor_flatten__()
            parts: dict[str, Any] = {name: getattr(tensor, name) for name in names}
            for name, part in parts.items():
                if isinstance(part, torch.Tensor):
                    parts[name] = self._tensor(part)
            return type(tensor).__tensor_unflatten__(parts, how, tensor.size(), tensor.stride())
        if not _is_plain(tensor):
            return copy.deepcopy(tensor)
        buffer = self._buffer(tensor).untyped_storage()
        layout = tensor.storage_offset(), tensor.size(), tensor.stride()
        return torch.empty(0, dtype=tensor.dtype).set_(buffer, *layout)

    def _buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the buffer of the tensor's storage, which is copied now or later."""
        storage, place = tensor.untyped_storage(), place_of(tensor)
        size = storage.nbytes()
        buffer = self.buffers.get((place, size))
        if buffer is not None:
            return buffer
        buffer = self._known.get((place, size))
        source = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        if buffer is not None and place in self._put_off:
            self.pairs.append(Pair(buffer, source))
        else:
            buffer = _allocate(size, pinned=self._pinned) if buffer is None else buffer
            buffer.copy_(source, non_blocking=self._pinned)
            if source.is_cuda:
                self.devices.add(source.device)
        self.buffers[place, size] = buffer
        return buffer


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is nothing but a view of a storage."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and place_of(tensor) != 0
    )


def _allocate(size: int, *, pinned: bool) -> torch.Tensor:
    buffer = torch.empty(size, dtype=torch.uint8)
    if pinned and size >= SMALL:
        # Torch's own pinned memory comes in powers of two: up to twice what is needed.
        cuda, place = torch.cuda.cudart(), buffer.data_ptr()
        torch.cuda.check_error(cuda.cudaHostRegister(place, size, 1))
        unpin = weakref.finalize(buffer.untyped_storage(), cuda.cudaHostUnregister, place)
        unpin.atexit = False  # CUDA may be gone by then
    return buffer
