"""A deep learning recommendation model after Naumov et al. 2019 (arXiv:1906.00091).

Embedding tables for the categories, an MLP for the numbers, the dot products of all pairs of their
vectors, and an MLP on top.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

NUMBERS = 8
HOT = 4
"""Rows of each table that a sample looks up; their sum is its vector."""

SIZES_VARIABLE = "DLRM_SIZES"
"""Environment variable that tells :func:`build` of other sizes than the default ones, as JSON."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """``layers`` is the number of hidden layers on top."""

    tables: int = 8
    rows: int = 4000
    dimension: int = 16
    layers: int = 4

    @classmethod
    def told(cls) -> Sizes:
        """Return the sizes that the environment tells, else the default ones."""
        return cls(**json.loads(os.environ.get(SIZES_VARIABLE) or "{}"))

    def tell(self) -> str:
        """Return what the environment variable says for these sizes."""
        return json.dumps(asdict(self))


class Tables(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Some of the model's tables, such as one rank's, under their numbers in the whole model."""

    def __init__(self, sizes: Sizes, numbers: Iterable[int], seed: int) -> None:
        super().__init__()
        self.parts = nn.ModuleDict()
        for number in numbers:
            # A seed of its own: a table's first weights do not depend on which rank has it.
            random = torch.Generator().manual_seed(seed + number)
            weights = torch.randn(sizes.rows, sizes.dimension, generator=random) * 0.05
            table = nn.EmbeddingBag(sizes.rows, sizes.dimension, mode="sum", sparse=True)
            table.weight.data.copy_(weights)
            self.parts[str(number)] = table

    def forward(self, ids: Any) -> Any:
        """Return the pooled vectors [n, tables, dimension] for ``ids`` [n, tables, HOT]."""
        tables = self.parts.values()
        return torch.stack([table(ids[:, at]) for at, table in enumerate(tables)], dim=1)


class Dense(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """All but the tables: what every rank has, and what is compiled."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.bottom = _mlp((NUMBERS, 64, sizes.dimension))
        vectors = sizes.tables + 1
        pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", pairs, persistent=False)
        hidden = [192 - 16 * (layer % 8) for layer in range(sizes.layers)]
        self.top = _mlp((sizes.dimension + pairs.shape[1], *hidden, 1))

    def forward(self, numbers: Any, pooled: Any) -> Any:
        """Return the logits [n] for ``numbers`` [n, NUMBERS] and all tables' pooled vectors."""
        bottom = self.bottom(numbers)
        vectors = torch.cat([bottom.unsqueeze(1), pooled], dim=1)
        dots = vectors @ vectors.transpose(1, 2)
        interactions = dots[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, interactions], dim=1)).squeeze(1)


class Dlrm(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """The model, with all tables unless ``numbers`` says which."""

    def __init__(self, sizes: Sizes, seed: int = 0, numbers: Iterable[int] | None = None) -> None:
        super().__init__()
        self.tables = Tables(sizes, range(sizes.tables) if numbers is None else numbers, seed)
        self.dense = Dense(sizes, seed)

    def forward(self, numbers: Any, ids: Any) -> Any:
        """Return the logits [n]; only with all tables."""
        return self.dense(numbers, self.tables(ids))


def build() -> Dlrm:
    """Return a model with fresh weights: the factory that publishing names."""
    return Dlrm(Sizes.told())


def example_batch() -> tuple[Any, Any]:
    """Return seeded inputs of a few rows, to try a loaded model with."""
    sizes = Sizes.told()
    random = torch.Generator().manual_seed(0)
    numbers = torch.rand(16, NUMBERS, generator=random)
    ids = torch.randint(0, sizes.rows, (16, sizes.tables, HOT), generator=random)
    return numbers, ids


def _mlp(sizes: Sequence[int]) -> Any:
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
