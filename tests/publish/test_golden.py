"""The trainer's own scores: they must be the snapshot's, within what the transforms cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from airflow_ett.checkpoints.golden import flatten, gather
from airflow_ett.errors import PublishError
from airflow_ett.publish.golden import compare, read_golden, tolerance_after

pytestmark = pytest.mark.torch


def named(*rows: float) -> dict[str, Any]:
    return {"scores.0": torch.tensor(rows).reshape(-1, 2)}


@pytest.mark.parametrize(
    "values", [(1, 2), (3,), {"ids": 4, "weight": 5}, tuple(range(12))], ids=str
)
def test_what_is_flattened_is_gathered_again(values: Any) -> None:
    flat = flatten("inputs", values) | flatten("scores", (9,))
    assert gather("inputs", flat) == values


def test_a_single_value_comes_back_as_a_tuple() -> None:
    assert gather("inputs", flatten("inputs", 7)) == (7,)


def test_the_difference_is_told_relative_to_the_largest_score() -> None:
    assert compare(named(1, 2, 3, -8), named(1, 2, 3.4, -8), 0.06) == pytest.approx(0.05)


def test_complex_scores_are_compared_as_a_whole() -> None:
    wanted = {"scores.0": torch.tensor([4 + 1j, 1 - 1j])}
    assert compare(wanted, wanted, 0.0) == 0.0
    with pytest.raises(PublishError, match="in row 1: 1 here, -1 in training"):
        compare(wanted, {"scores.0": torch.tensor([4 + 1j, 1 + 1j])}, 0.1)


def test_it_is_said_what_differs_and_where() -> None:
    with pytest.raises(PublishError) as caught:
        compare(named(1, 2, 3, -8), named(1.1, 2, 3.5, -8), 0.06)
    message = str(caught.value)
    assert "scores.0 differs from the trainer's by up to 0.5, in row 1: 3.5 here, 3 in" in message
    assert "0.06 of the largest score, 8" in message


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"scores.1": torch.ones(1)}, r"returns \['scores.1'\], in training \['scores.0'\]"),
        (named(1, 2, 3, 4, 5, 6), r"scores.0 has the shape \[3, 2\], in training \[2, 2\]"),
    ],
)
def test_other_names_or_shapes_are_refused(found: dict[str, Any], message: str) -> None:
    with pytest.raises(PublishError, match=message):
        compare(named(1, 2, 3, 4), found, 1.0)


def test_scores_that_were_not_finite_in_training_are_refused() -> None:
    with pytest.raises(PublishError, match="in training were NaN"):
        compare(named(1, float("nan")), named(1, 2), 1.0)


def test_a_score_that_is_no_number_never_passes() -> None:
    with pytest.raises(PublishError, match="differs"):
        compare(named(1, 2), named(1, float("nan")), 1.0)


def test_scores_of_nothing_do_not_differ() -> None:
    assert compare(named(), named(), 0.0) == 0.0
    assert compare(named(0, 0), named(0, 0), 0.0) == 0.0


def test_the_tolerance_follows_the_cast() -> None:
    casts = (None, "float32", "bfloat16", "float16", "int8")
    assert [tolerance_after(cast) for cast in casts] == [1e-4, 1e-4, 2e-2, 2e-2, 0.1]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), ({"scores.0": torch.ones(1)}, "no inputs, or no scores")],
)
def test_a_file_that_is_no_golden_batch_is_refused(
    tmp_path: Path, content: dict[str, Any] | None, message: str
) -> None:
    path = tmp_path / "golden.safetensors"
    path.write_bytes(b"nonsense") if content is None else save_file(content, path)
    with pytest.raises(PublishError, match=message):
        read_golden(path)
