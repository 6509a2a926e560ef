"""The random numbers' states: bit by bit the same again, without a pickle's code."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest

from airflow_ett.trainer import randomness

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


def draw() -> list[Any]:
    return [
        random.random(),
        random.gauss(0, 1),
        torch.rand(3).tolist(),
        torch.nn.functional.dropout(torch.ones(16)).tolist(),
        numpy.random.rand(3).tolist(),
        numpy.random.standard_normal(),
    ]


def test_all_numbers_go_on_where_they_were_taken_and_load_as_weights_only() -> None:
    before = draw()  # leaves second halves of Gaussian pairs behind
    buffer = io.BytesIO()
    torch.save(randomness.capture(), buffer)
    first = draw()
    assert first != before
    buffer.seek(0)
    randomness.put_back(torch.load(buffer, weights_only=True))
    assert draw() == first


def test_what_was_not_saved_is_left_alone() -> None:
    states = randomness.capture()
    del states["numpy"]
    numpy.random.seed(5)
    wanted = numpy.random.rand(2).tolist()
    numpy.random.seed(5)
    randomness.put_back(states)
    assert numpy.random.rand(2).tolist() == wanted
