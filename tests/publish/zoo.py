"""Models of the kinds that loading, trying and exporting must get right, and batches for them."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn


class Ranker(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A table, a layer, and one that is no plain ``Linear``."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(50, 8, mode="sum")
        self.layer = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.top = Doubling(16, 1)

    def forward(self, ids: Any, weight: Any) -> Any:
        """Return the scores [n] of ids [n, k], each counting ``weight`` [n]."""
        hidden = self.norm(self.layer(self.table(ids)).relu())
        return self.top(hidden).squeeze(1) * weight


class Doubling(nn.Linear):  # type: ignore[misc]  # torch is not typed here
    """Uses its weight in its own way, as attention does."""

    def forward(self, value: Any) -> Any:
        """Return twice what a layer returns."""
        return 2 * nn.functional.linear(value, self.weight, self.bias)


class Positions(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Has a table that is in no checkpoint; ``plain`` says that torch does not know of it."""

    def __init__(self, *, plain: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        table = torch.arange(3.0)
        if plain:
            self.kept = [table]
        else:
            self.register_buffer("kept", table, persistent=False)

    def forward(self, value: Any) -> Any:
        """Return the layer's answer and the table's."""
        return self.layer(value) + self.kept[0]


class Remembering(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Holds its weight once more, where no state has it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.kept = [self.layer.weight]

    def forward(self, value: Any) -> Any:
        """Return the layer's answer, without its bias."""
        return value @ self.kept[0].T


class Extra(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Has more in its state than tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.factor = 2

    def forward(self, value: Any) -> Any:
        """Return a multiple of the layer's answer."""
        return self.factor * self.layer(value)

    def get_extra_state(self) -> dict[str, int]:
        """Return what is no weight."""
        return {"factor": self.factor}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Take it."""
        self.factor = state["factor"]


class Turning(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Turns its input by angles, as positions do in transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        turns = torch.polar(torch.ones(1), torch.ones(1))
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, value: Any) -> Any:
        """Return the layer's answer, turned."""
        pair = torch.view_as_complex(self.layer(value).float()[:, None])
        return torch.view_as_real(pair * self.turns)[:, 0]


class Choosy(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Decides in Python by what is in the batch, which no export can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, value: Any) -> Any:
        """Return the layer's answer, or its negative."""
        return self.layer(value) if float(value.sum()) > 0 else -self.layer(value)


class Weighted(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Takes weights of its three columns beside the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, value: Any, weight: Any) -> Any:
        """Return the layer's answer."""
        return self.layer(value * weight)


class Rowed(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Knows how many rows come."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("shift", torch.zeros(5, 1))

    def forward(self, value: Any) -> Any:
        """Return the scores of five rows."""
        return self.layer(value) + self.shift


def ranker() -> Ranker:
    """Return a ranker with fresh weights."""
    return Ranker()


def half_ranker() -> Any:
    """Return one that computes in bfloat16."""
    return Ranker().to(torch.bfloat16)


def scaled() -> Any:
    """Return a layer whose first weights are scaled by a value, which must be there for it."""
    layer = nn.Linear(3, 1)
    layer.weight.data.div_(layer.weight.abs().max().item())
    return nn.Sequential(layer)


def buffered() -> Positions:
    """Return a model with a buffer that is not in its state."""
    return Positions(plain=False)


def hiding() -> Positions:
    """Return a model with a tensor that torch does not know of."""
    return Positions(plain=True)


def remembering() -> Remembering:
    """Return a model whose weight something else holds, too."""
    return Remembering()


def no_module() -> str:
    """Return what is no model."""
    return "no module"


def leave() -> None:
    """End the process at once, as one that is out of memory is ended."""
    os._exit(7)


def batch() -> dict[str, Any]:
    """Return a batch for a ranker."""
    ids = torch.randint(0, 50, (7, 4), generator=torch.Generator().manual_seed(2))
    return {"ids": ids, "weight": torch.linspace(0.5, 2.0, 7)}


def values() -> Any:
    """Return a batch of five rows of three."""
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(3))


def trained(model: Any, seed: int = 4) -> Any:
    """Return a model with other weights and statistics than a fresh one, ready to score."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.1)
    return model.eval()
