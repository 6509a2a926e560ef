"""Batches are marked and padded, whatever they are made of."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.graphs import mark_dynamic, pad_to

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Example:
    ids: Any
    weight: Any = None
    total: Any = field(init=False, default=0)


def nested(rows: int) -> dict[str, Any]:
    return {
        "pair": Pair(torch.ones(rows, 2), torch.arange(rows)),
        "list": [torch.ones(rows, dtype=torch.bool), "name", (torch.ones(rows, 2, 3),)],
        "example": Example(torch.ones(rows)),
        "scale": torch.tensor(2.0),
        "step": 7,
        "none": {},
    }


def tensors(batch: dict[str, Any]) -> list[Any]:
    inner = batch["list"]
    return [*batch["pair"], inner[0], inner[2][0], batch["example"].ids]


def marked(tensor: Any) -> set[int]:
    return getattr(tensor, "_dynamo_weak_dynamic_indices", set())


def test_every_tensor_of_a_batch_is_marked() -> None:
    batch = nested(3)
    assert mark_dynamic(batch) is batch
    assert [marked(tensor) for tensor in tensors(batch)] == 5 * [{0}]
    assert marked(batch["scale"]) == set()


@pytest.mark.parametrize(
    ("dim", "expected"), [(1, {1}), (-1, {2}), (-3, {0}), (3, set()), (-4, set())]
)
def test_another_dimension_is_marked_where_there_is_one(dim: int, expected: set[int]) -> None:
    tensor = mark_dynamic(torch.ones(4, 5, 6), dim)
    assert marked(tensor) == expected


def test_a_batch_gets_the_rows_it_lacks() -> None:
    batch, rows, mask = pad_to(nested(3), 5)
    assert rows == 3
    assert mask.tolist() == [True, True, True, False, False]
    left, right = batch["pair"]
    assert (batch["pair"].left is left, batch["pair"].right is right) == (True, True)
    assert right.tolist() == [0, 1, 2, 0, 0]
    assert left.tolist() == 3 * [[1.0, 1.0]] + 2 * [[0.0, 0.0]]
    assert [tuple(tensor.shape) for tensor in tensors(batch)] == [
        (5, 2),
        (5,),
        (5,),
        (5, 2, 3),
        (5,),
    ]
    assert (batch["list"][0].dtype, batch["list"][1]) == (torch.bool, "name")
    assert isinstance(batch["example"], Example)
    assert batch["example"].ids.tolist() == [1, 1, 1, 0, 0]
    assert (batch["scale"], batch["step"], batch["none"]) == (torch.tensor(2.0), 7, {})


def test_what_was_given_stays_as_it_was() -> None:
    given = nested(3)
    pad_to(given, 5)
    assert [len(tensor) for tensor in tensors(given)] == 5 * [3]


def test_a_full_batch_is_not_copied() -> None:
    given = nested(5)
    batch, rows, mask = pad_to(given, 5)
    assert all(one is two for one, two in zip(tensors(batch), tensors(given), strict=True))
    assert (rows, mask.all().item()) == (5, True)


@pytest.mark.parametrize(
    "made",
    [OrderedDict(x=torch.ones(2)), defaultdict(list, x=torch.ones(2))],
    ids=["order", "default"],
)
def test_a_dict_stays_of_its_kind(made: Any) -> None:
    batch = pad_to(made, 3).batch
    assert type(batch) is type(made)
    assert batch["x"].tolist() == [1, 1, 0]
    assert getattr(batch, "default_factory", None) is getattr(made, "default_factory", None)


def test_images_keep_their_layout() -> None:
    images = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    padded = pad_to(images, 3).batch
    assert padded.is_contiguous(memory_format=torch.channels_last)


def test_the_loss_of_the_real_rows() -> None:
    losses, _, mask = pad_to(torch.tensor([2.0, 4.0]), 6)
    assert (losses * mask).sum() / mask.sum() == 3.0


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (torch.ones(9), "size: is 8, but the batch has 9 rows"),
        ([torch.ones(2), torch.ones(3)], "different numbers of rows: 2, 3"),
        ({"scale": torch.tensor(1.0), "name": "x"}, "batch: has no rows"),
    ],
    ids=["too long", "ragged", "no rows"],
)
def test_what_cannot_be_padded(batch: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        pad_to(batch, 8)
