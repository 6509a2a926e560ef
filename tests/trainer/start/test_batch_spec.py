"""A batch made from a specification is like the one that was specified, also through JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.trainer.start.batchspec import BatchSpec, NoBatch

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    dense: Any
    labels: Any


@dataclasses.dataclass(frozen=True)
class Ragged:
    values: Any
    longest: int

    def __post_init__(self) -> None:
        raise AssertionError("a specification's class is not to be run")


def ragged(values: Any, longest: int) -> Ragged:
    made = object.__new__(Ragged)
    object.__setattr__(made, "values", values)
    object.__setattr__(made, "longest", longest)
    return made


DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.bool)


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    """Contiguous, transposed, strided and expanded ones, empty and 0-dimensional ones included."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    tensor = torch.ones(shape, dtype=draw(st.sampled_from(DTYPES)))
    if shape:
        way = draw(st.sampled_from(("as it is", "transposed", "strided", "expanded")))
        if way == "transposed":
            tensor = tensor.permute(*reversed(range(len(shape))))
        elif way == "strided":
            tensor = tensor[..., ::2]
        elif way == "expanded":
            tensor = tensor[..., :1].expand([*shape[:-1], 4]) if shape[-1] else tensor
    if tensor.is_floating_point() and draw(st.booleans()):
        tensor = tensor.detach().requires_grad_()
    return tensor


plain = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
plain |= st.floats(allow_nan=False)
batches = st.recursive(
    tensors() | plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(ragged, inner, st.integers())
    ),
    max_leaves=8,
)


@given(batches)
def test_what_is_made_is_like_what_was_described(batch: Any) -> None:
    spec = BatchSpec.of(batch)
    again = BatchSpec.of_dict(json.loads(json.dumps(spec.as_dict())))
    assert again == spec
    assert again.differences(spec) == ""
    assert alike(batch, again.make())
    assert BatchSpec.of(again.make()) == spec


def alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        facts = ("shape", "dtype", "device", "requires_grad", "layout")
        same = all(getattr(one, fact) == getattr(other, fact) for fact in facts)
        return bool(same and one.stride() == other.stride() and other.isfinite().all())
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if dataclasses.is_dataclass(one):
        return alike(vars(one), vars(other))
    return bool(one == other)


def test_whole_numbers_are_rows_that_exist_and_fractions_are_probabilities() -> None:
    rows, mask, labels = BatchSpec.of(
        (torch.full((2, 3), 9), torch.ones(2, dtype=torch.bool), torch.zeros(2))
    ).make()
    assert rows.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert mask.tolist() == [False, False]
    assert labels.tolist() == [0.5, 0.5]


class Own(torch.Tensor):  # type: ignore[misc]
    """A tensor that may do anything."""


def local() -> Any:
    @dataclasses.dataclass
    class Local:
        size: int = 1

    return Local()


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ({"ids": torch.eye(2).to_sparse()}, "ids is a tensor without strides (torch.sparse_coo)"),
        ([torch.ones(2).as_subclass(Own)], "0 is a tensor of a class of its own, Own"),
        ({"a": [OrderedDict()]}, "a.0 is of collections.OrderedDict"),
        (object(), "the batch is of builtins.object"),
        ({(1, 2): 3}, "the batch has keys that are neither texts nor numbers"),
        ({"a": local()}, "a is of a class that is not found by its name"),
    ],
)
def test_what_cannot_be_described_is_named(batch: Any, reason: str) -> None:
    with pytest.raises(NoBatch) as raised:
        BatchSpec.of(batch)
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize(
    ("came", "words"),
    [
        (
            lambda: {"dense": torch.ones(4, 256).T, "n": 1},
            "dense: stride (4, 1) was expected, (1, 256) came",
        ),
        (
            lambda: {"dense": torch.ones(8, 4).half(), "n": 2},
            "dense: shape (256, 4) was expected, (8, 4) came; "
            "dense: dtype float32 was expected, float16 came; "
            "n: value 1 was expected, 2 came",
        ),
        (lambda: {"dense": torch.ones(256, 4)}, "the batch: parts dense, n were expected, dense"),
        (lambda: [1, 2], "the batch: a dict was expected, a list came"),
        (
            lambda: {"dense": torch.ones(9, 9, dtype=torch.int8, requires_grad=False), "n": 2},
            "dense: shape (256, 4) was expected, (9, 9) came; "
            "dense: stride (4, 1) was expected, (9, 1) came; "
            "dense: dtype float32 was expected, int8 came; and 1 more",
        ),
    ],
)
def test_a_difference_is_told_in_words(came: Callable[[], Any], words: str) -> None:
    spec = BatchSpec.of({"dense": torch.ones(256, 4), "n": 1})
    assert spec.differences(BatchSpec.of(came())).startswith(words)


HERE = f"{__name__}:Ragged"


@pytest.mark.parametrize(
    "told",
    [
        {},
        [],
        {"is": "module"},
        {"is": "dict", "parts": [[[], {"is": "value", "value": 1}]]},
        {"is": "tensor", "shape": [2], "stride": [1], "device": "cpu", "requires_grad": False},
        {**BatchSpec.of(torch.ones(2)).as_dict(), "dtype": "load"},
        {**BatchSpec.of(torch.ones(2)).as_dict(), "device": "cuda:99"},
        {"is": "dataclass", "class": "antigravity:Batch", "parts": []},
        {"is": "dataclass", "class": "subprocess:Popen", "parts": []},
        {"is": "dataclass", "class": f"{HERE}.__post_init__", "parts": []},
        {"is": "namedtuple", "class": HERE, "parts": []},
        {"is": "namedtuple", "class": f"{__name__}:Pair", "parts": []},
    ],
)
def test_a_damaged_specification_makes_nothing_and_runs_nothing(told: Any) -> None:
    with pytest.raises(NoBatch):
        BatchSpec.of_dict(told).make()
    assert "antigravity" not in sys.modules
