"""Ratings as tensors, and the order in which they are trained: a pure function of the cursor."""

from __future__ import annotations

import csv
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from airflow_ett.examples.ranker.model import BUCKETS, ITEMS, USERS, Batch
from airflow_ett.examples.ranker.movielens import Unavailable, fetch

ROWS = 100_000
HELD_OUT = 10_000
LIKED = 4
_HOUR = 3600
_DAY = 24 * _HOUR


class Rating(NamedTuple):
    """One row: who rated what, with how many stars (1 to 5), when (UTC seconds)."""

    user: int
    item: int
    stars: int
    time: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """Features and labels in order of time; the last :data:`HELD_OUT` rows are for evaluation."""

    dense: Any
    sparse: Any
    label: Any
    source: str

    @property
    def train_rows(self) -> int:
        """Number of rows to train on."""
        return len(self.label) - HELD_OUT

    def rows(self, ids: Any) -> Batch:
        """Return the rows with these numbers."""
        return Batch(self.dense[ids], self.sparse[ids], self.label[ids])

    def held_out(self) -> Batch:
        """Return the newest rows, which training never sees."""
        return self.rows(slice(self.train_rows, None))


def load(folder: Path | None, seed: int) -> Dataset:
    """Return MovieLens-100k from ``folder`` (fetched into it if need be), else synthetic ratings.

    ``source`` says which it is and why.
    """
    if folder is None:
        return _features(synthetic(seed), "synthetic ratings (no --data folder given)")
    try:
        path = fetch(folder)
    except Unavailable as reason:
        return _features(synthetic(seed), f"synthetic ratings, since {reason}")
    return _features(read(path), f"MovieLens-100k from {path}")


def read(path: Path) -> list[Rating]:
    """Return the rows of a RecBole ``.inter`` file of user, item, rating and time."""
    with path.open(newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        next(rows)
        return [Rating(int(u), int(i), int(float(s)), int(float(t))) for u, i, s, t in rows]


def synthetic(seed: int) -> list[Rating]:
    """Return as many ratings by as many users of as many items as MovieLens-100k has.

    Items differ in popularity and stars follow the product of hidden vectors, so that there is
    something to learn.
    """
    random = torch.Generator().manual_seed(seed)
    user = torch.randint(1, USERS, (ROWS,), generator=random)
    popularity = 1.0 / torch.arange(8, ITEMS + 7)
    item = 1 + torch.multinomial(popularity, ROWS, replacement=True, generator=random)
    tastes = torch.randn(USERS, 8, generator=random)
    traits = torch.randn(ITEMS, 8, generator=random)
    noise = torch.randn(ROWS, generator=random)
    liking = (tastes[user] * traits[item]).sum(1) / 8**0.5
    stars = (3.5 + 0.8 * liking + 0.5 * noise).round().clamp(1, 5).int()
    time = 874_724_710 + torch.randint(0, 215 * _DAY, (ROWS,), generator=random)
    columns = (user.tolist(), item.tolist(), stars.tolist(), time.tolist())
    return [Rating(*row) for row in zip(*columns, strict=True)]


def _features(ratings: list[Rating], source: str) -> Dataset:
    """Derive the features; counts look only backwards in time, so that no label leaks."""
    by_user: Counter[int] = Counter()
    by_item: Counter[int] = Counter()
    dense, sparse, label = [], [], []
    ratings = sorted(ratings, key=lambda rating: rating.time)
    first, span = ratings[0].time, max(1, ratings[-1].time - ratings[0].time)
    for user, item, stars, time in ratings:
        hour, weekday = time % _DAY // _HOUR, time // _DAY % 7
        dense.append((by_user[user], by_item[item], (time - first) / span, hour / 24))
        crosses = (user * 24 + hour, item * 7 + weekday)
        sparse.append((user, item, hour + 24 * weekday, *(_hashed(cross) for cross in crosses)))
        label.append(float(stars >= LIKED))
        by_user[user] += 1
        by_item[item] += 1
    numbers = torch.tensor(dense)
    numbers[:, :2] = numbers[:, :2].log1p() / 8
    return Dataset(numbers, torch.tensor(sparse), torch.tensor(label), source)


def _hashed(value: int) -> int:
    """Return a bucket for ``value`` (Knuth's multiplicative hash; the upper bits mix best)."""
    return (value * 2_654_435_761 % 2**32 >> 16) % BUCKETS


def sample_ids(cursor: int, size: int, rows: int, seed: int) -> Any:
    """Return which rows lie at the global positions from ``cursor`` to ``cursor + size``.

    Position p belongs to epoch ``p // rows``; each epoch is a permutation of its own. So a resumed
    training goes on exactly where the cursor says, and a batch may reach across epochs.
    """
    parts = []
    while size > 0:
        epoch, at = divmod(cursor, rows)
        part = _permutation(epoch, rows, seed)[at : at + size]
        parts.append(part)
        cursor, size = cursor + len(part), size - len(part)
    return torch.cat(parts)


@functools.lru_cache(maxsize=2)
def _permutation(epoch: int, rows: int, seed: int) -> Any:
    # torch's generator takes only 32 bits of a seed, so both must fit into them.
    random = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**32)
    return torch.randperm(rows, generator=random)


def batches(data: Dataset, *, start: int, total: int, size: int, seed: int) -> Iterator[Batch]:
    """Yield the batches from position ``start`` on while a whole one fits below ``total``.

    All have the same size: a ragged last one would be another graph to compile.
    """
    for cursor in range(start, total - size + 1, size):
        yield data.rows(sample_ids(cursor, size, data.train_rows, seed))
