"""Batches that worker processes hand over many at a time.

A loader hands each batch over by itself, and each of its tensors by a file descriptor of its own,
sent through a socket: that took a training 1 ms a batch, as long as the batch had long been made. A
parcel has the tensors of many batches in one piece of shared memory, and the rest of them pickled.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.levers import Levers

_LEVER = "parcels"
_ALIGNED = 64
"""Where a tensor begins, in bytes: as torch allocates them."""

_KEPT = (
    *("num_workers", "pin_memory", "worker_init_fn", "multiprocessing_context", "generator"),
    *("persistent_workers", "pin_memory_device"),
)


def in_parcels(loader: Any, batches: int, levers: Levers) -> Any:
    """Return a loader of the same batches, or the same loader where that cannot be."""
    if type(batches) is not int or batches < 1:
        raise ConfigurationError("batches", f"must be a whole number from 1 on, not {batches!r}")
    if not levers.on(_LEVER):
        return loader
    if problem := _problem(loader):
        levers.tell(_LEVER, "unable", problem)
        return loader
    levers.tell(_LEVER, "used", f"{batches} batches at a time")
    return _Loader(loader, batches)


def _problem(loader: Any) -> str:
    if type(loader) is not DataLoader:
        return f"this needs a torch.utils.data.DataLoader, not a {type(loader).__name__}"
    if not loader.num_workers:
        return "the loader has no worker processes: nothing is handed over"
    if loader.batch_size is None and loader.batch_sampler is not None:
        return "the loader has a batch_sampler of its own: give it sampler and batch_size instead"
    if not getattr(loader, "in_order", True):
        return "the loader has in_order=False"
    return ""


class _Loader(DataLoader):  # type: ignore[misc]  # torch is not typed here
    """Has its workers make parcels, and yields the batches in them, in the order of ``loader``."""

    def __init__(self, loader: Any, batches: int) -> None:
        iterable = isinstance(loader.dataset, IterableDataset)
        super().__init__(
            loader.dataset,
            batch_size=batches * (loader.batch_size or 1),
            sampler=None if iterable else loader.sampler,
            collate_fn=_Pack(loader.collate_fn, loader.batch_size, drop_last=loader.drop_last),
            timeout=loader.timeout * batches,
            # A worker is to make the next parcel while the training has this one.
            prefetch_factor=max(2, math.ceil(loader.prefetch_factor / batches)),
            **{name: getattr(loader, name) for name in _KEPT},
        )
        self._plain = loader
        self._most = batches
        self._turns = loader.num_workers if iterable else 1

    def __len__(self) -> int:
        return len(self._plain)

    def __iter__(self) -> Iterator[Any]:
        """Have the workers begin at once, not when the first batch is asked for."""
        return in_turn(super().__iter__(), self._turns, self._most)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Batches of a worker: the bytes of their tensors, and all else, pickled."""

    worker: int
    data: Any
    layout: Sequence[tuple[Any, ...]]
    rest: bytes

    @classmethod
    def of(cls, batches: Sequence[Any], worker: int = 0) -> Parcel:
        """Pack batches."""
        out = io.BytesIO()
        packer = _Packer(out)
        packer.dump(list(batches))
        data = torch.empty(packer.size, dtype=torch.uint8)
        for tensor, layout in zip(packer.tensors, packer.layout, strict=True):
            _tensor(data.untyped_storage(), layout).copy_(tensor)
        return cls(worker, data, packer.layout, out.getvalue())

    def batches(self) -> list[Any]:
        """Unpack them. Their tensors lie in the parcel's memory."""
        batches: list[Any] = _Unpacker(self).load()
        return batches

    def pin_memory(self) -> Parcel:
        """Return it in memory that a GPU copies from at once; torch calls this."""
        return replace(self, data=self.data.pin_memory())


class _Pack:
    """Makes a parcel of many batches' samples, in a worker."""

    def __init__(self, collate: Callable[[Any], Any], size: int | None, *, drop_last: bool) -> None:
        self._collate = collate
        self._size = size
        self._drop_last = drop_last

    def __call__(self, samples: Sequence[Any]) -> Parcel:
        size = self._size
        parts = samples if size is None else self._cut(samples, size)
        return Parcel.of([self._collate(part) for part in parts], get_worker_info().id)

    def _cut(self, samples: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
        whole = len(samples) // size * size
        end = whole if self._drop_last else len(samples)
        return (samples[at : at + size] for at in range(0, end, size))


def in_turn(parcels: Iterable[Parcel], turns: int, most: int) -> Iterator[Any]:
    """Yield the batches as single ones would come: from each of ``turns`` workers in turn.

    Parcels come from each worker in turn, too; one with less than ``most`` batches is its last.
    """
    due, known = set(range(turns)), [list[Any]() for _ in range(turns)]
    for parcel in parcels:
        turn = parcel.worker if turns > 1 else 0
        if known[turn]:  # one that was due has ended with a whole parcel
            due = {one for one in due if len(known[one]) == most}
            yield from _next_round(known)
        known[turn] = parcel.batches()
        if all(known[one] or one == turn for one in due):
            due = {one for one in due if len(known[one]) == most}
            yield from _next_round(known)
    yield from _next_round(known)


def _next_round(known: list[list[Any]]) -> Iterator[Any]:
    """Yield what is known, one of each in turn, and forget it: a parcel's memory is then free."""
    for at in range(max(map(len, known))):
        for batches in known:
            if at < len(batches):
                yield batches[at]
    for batches in known:
        batches.clear()


class _Packer(pickle.Pickler):
    """Pickles what is no tensor; notes the tensors and where they will lie."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Any] = []
        self.layout: list[tuple[Any, ...]] = []
        self.size = 0
        self._known: dict[int, int] = {}

    def persistent_id(self, thing: Any) -> int | None:
        """Return a tensor's place in the layout."""
        if type(thing) is not torch.Tensor or not _plain(thing):
            return None
        if id(thing) not in self._known:
            self._known[id(thing)] = len(self.tensors)
            self.tensors.append(thing)
            begins = math.ceil(self.size / _ALIGNED) * _ALIGNED
            at = begins // thing.element_size()
            self.layout.append((thing.dtype, at, thing.shape, thing.stride()))
            self.size = begins + thing.nbytes
        return self._known[id(thing)]


class _Unpacker(pickle.Unpickler):
    def __init__(self, parcel: Parcel) -> None:
        super().__init__(io.BytesIO(parcel.rest))
        storage = parcel.data.untyped_storage()
        self._tensors = [_tensor(storage, layout) for layout in parcel.layout]

    def persistent_load(self, place: int) -> Any:
        """Return the tensor at a place of the layout."""
        return self._tensors[place]


def _tensor(storage: Any, layout: tuple[Any, ...]) -> Any:
    """Return a tensor that lies in a storage and is no view of another one."""
    dtype, at, shape, stride = layout
    return torch.empty(0, dtype=dtype).set_(storage, at, shape, stride)


def _plain(tensor: Any) -> bool:
    """Return whether its elements, in main memory, are all that there is to a tensor."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.requires_grad:
        return False
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.__dict__:
        return False
    return tensor.numel() == 0 or _dense(tensor.shape, tensor.stride())


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements lie side by side, in whatever order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
