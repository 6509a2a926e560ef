"""Synthetic clicks, made by a worker process: a pure function of the cursor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

from airflow_ett.examples.dlrm.model import HOT, NUMBERS, Sizes

SHARDS = 64
AT_ONCE = 32
"""So many batches a worker hands over at a time. All that are under way take ten megabytes."""
_QUARTERS = (4, 2, 3, 1, 4, 3)
"""Sizes of successive batches that vary, in quarters of the largest."""


class Batch(NamedTuple):
    """One rank's part: ``numbers`` and ``label`` of its own samples, ``ids`` [n, tables, HOT] of
    all ranks' samples for its own tables."""

    numbers: Any
    ids: Any
    label: Any

    @property
    def samples(self) -> int:
        """The number of all ranks' samples."""
        return len(self.ids)


class Part(NamedTuple):
    """What of each batch a rank reads."""

    rank: int
    world: int
    tables: Sequence[int]


@dataclass(frozen=True, slots=True)
class Order:
    """Which batches there are: of ``size`` samples up to ``total``; varying ones are smaller."""

    total: int
    size: int
    varies: bool = False

    def since(self, cursor: int) -> Iterator[tuple[int, int]]:
        """Yield cursor and size of each batch from ``cursor`` on, whole ones only."""
        quarters = _QUARTERS if self.varies else (4,)
        period, at = self.size // 4 * sum(quarters), 0
        place = cursor % period
        while place > 0:
            place -= quarters[at] * self.size // 4
            at += 1
        while cursor + (size := quarters[at % len(quarters)] * self.size // 4) <= self.total:
            yield cursor, size
            cursor, at = cursor + size, at + 1


def make_index(seed: int, wait_s: float) -> list[int]:
    """Return at which position each shard of the data begins; its shards are asked one by one."""
    starts = [0]
    for shard in range(SHARDS):
        time.sleep(wait_s / SHARDS)
        starts.append(starts[-1] + 900 + int(_mixed(torch.tensor(seed * SHARDS + shard))) % 200)
    return starts


class Clicks(IterableDataset):  # type: ignore[misc]  # torch is not typed here
    """The batches from ``cursor`` on. Opening it takes ``wait_s``, as far away storage does."""

    def __init__(
        self,
        sizes: Sizes,
        part: Part,
        order: Order,
        index: Sequence[int],
        *,
        cursor: int,
        seed: int,
        wait_s: float,
    ) -> None:
        self._sizes, self._part, self._order = sizes, part, order
        self._starts = torch.tensor(index)
        self._cursor, self._seed, self._wait_s = cursor, seed, wait_s

    def __iter__(self) -> Iterator[Batch]:
        time.sleep(self._wait_s)
        for cursor, size in self._order.since(self._cursor):
            yield self.batch(cursor, size)

    def batch(self, cursor: int, size: int) -> Batch:
        """Return this rank's part of the samples from ``cursor`` to ``cursor + size``."""
        keys = self._keys(torch.arange(cursor, cursor + size))
        share = size // self._part.world
        own = keys[self._part.rank * share : (self._part.rank + 1) * share]
        numbers = _uniform(_mixed(own[:, None] * 31 + torch.arange(NUMBERS)))
        liking = (self._ids(own, [0]) % 2).sum((1, 2)) - HOT / 2
        odds = torch.sigmoid(numbers.sum(1) - NUMBERS / 2 + liking)
        label = (_uniform(_mixed(own * 37)) < odds).float()
        return Batch(numbers, self._ids(keys, self._part.tables), label)

    def _keys(self, positions: Any) -> Any:
        """Return a random number for each sample, by its shard and its place there; over epochs."""
        epoch, at = positions // self._starts[-1], positions % self._starts[-1]
        shard = torch.bucketize(at, self._starts, right=True) - 1
        row = at - self._starts[shard]
        return _mixed(((epoch * SHARDS + shard) << 20) + row + (self._seed << 44))

    def _ids(self, keys: Any, tables: Sequence[int]) -> Any:
        columns = (torch.tensor(tables)[:, None] * HOT + torch.arange(HOT)) * 41
        return (_mixed(keys[:, None, None] + columns) >> 20) % self._sizes.rows


def load(clicks: Clicks) -> DataLoader:
    """Return a loader that has a worker process make the batches."""
    return DataLoader(clicks, batch_size=None, num_workers=1, prefetch_factor=8)


def _mixed(keys: Any) -> Any:
    """Return numbers, at least 0, that look random (the finaliser of Murmur3)."""
    keys = (keys ^ (keys >> 33)) * -0xAE502812AA7333
    keys = (keys ^ (keys >> 33)) * -0x3B314601E57A13AD
    return (keys ^ (keys >> 33)) & (2**62 - 1)


def _uniform(keys: Any) -> Any:
    return (keys >> 38).float() / 2**24
