"""A small deep learning recommendation model after Naumov et al. 2019 (arXiv:1906.00091).

Embedding tables for the categories (laid end to end in one, so that one lookup serves all), an MLP
for the numbers, the dot products of all pairs of their vectors, and an MLP on top.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

USERS = 944
ITEMS = 1683
HOURS_OF_WEEK = 168
BUCKETS = 2048
TABLES = (USERS, ITEMS, HOURS_OF_WEEK, BUCKETS, BUCKETS)
NUMBERS = 4
DIMENSION = 32
BOTTOM = (64,)
TOP = (1024, 768)


class Batch(NamedTuple):
    """``dense`` float32 [n, 4], ``sparse`` int64 [n, 5] (one row a table), ``label`` [n]."""

    dense: Any
    sparse: Any
    label: Any


class Ranker(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Scores how probable it is that a user likes an item; returns logits of shape [n]."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.Embedding(sum(TABLES), DIMENSION)
        nn.init.normal_(self.tables.weight, std=0.05)
        starts = [0, *itertools.accumulate(TABLES[:-1])]
        self.register_buffer("starts", torch.tensor(starts), persistent=False)
        self.bottom = _mlp((NUMBERS, *BOTTOM, DIMENSION))
        vectors = len(TABLES) + 1
        pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.top = _mlp((DIMENSION + pairs.shape[1], *TOP, 1))

    def forward(self, dense: Any, sparse: Any) -> Any:
        """Return the logits for a batch's numbers and categories."""
        numbers = self.bottom(dense)
        vectors = torch.cat([numbers.unsqueeze(1), self.tables(sparse + self.starts)], dim=1)
        dots = vectors @ vectors.transpose(1, 2)
        interactions = dots[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([numbers, interactions], dim=1)).squeeze(1)


def _mlp(sizes: Sequence[int]) -> Any:
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def build() -> Ranker:
    """Return a model with fresh weights: the factory that publishing names."""
    return Ranker()


def example_batch() -> tuple[Any, Any]:
    """Return seeded inputs of a few rows, to try a loaded model with."""
    random = torch.Generator().manual_seed(0)
    dense = torch.rand(16, NUMBERS, generator=random)
    sparse = [torch.randint(0, rows, (16,), generator=random) for rows in TABLES]
    return dense, torch.stack(sparse, dim=1)
