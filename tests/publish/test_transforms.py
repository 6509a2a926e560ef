"""Weights in int8: a quarter of the size, each value off by half a step of its row at most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from airflow_ett.errors import PublishError
from tests.publish.reading import model_weights
from tests.publish.sharded import grid, numbered, save_sharded

pytestmark = pytest.mark.torch


def as_int8(folder: Path, tensors: dict[str, Any], **chunks: Any) -> dict[str, Any]:
    """Return what the int8 snapshot holds."""
    return model_weights(save_sharded(folder / "c", tensors, chunks), "int8")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("slab", [64, 32 << 20])
def test_each_row_has_its_own_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any, slab: int
) -> None:
    monkeypatch.setattr("airflow_ett.publish.layout.SLAB", slab)
    monkeypatch.setattr("airflow_ett.publish.transforms.SLAB", slab)
    torch.manual_seed(0)
    weight = (torch.randn(9, 7) * torch.logspace(-3, 3, 9)[:, None]).to(dtype)
    read = as_int8(tmp_path, {"w": weight}, w=grid((9, 7), [[4], [3]]))
    assert (read["w"].dtype, read["w.scale"].dtype) == (torch.int8, torch.float32)
    scale = read["w.scale"][:, None]
    assert scale.shape == (9, 1)
    assert torch.allclose(scale, weight.float().abs().amax(dim=1, keepdim=True) / 127)
    assert bool(((read["w"] * scale - weight.float()).abs() <= 0.5001 * scale).all())
    assert read["w"].abs().amax(dim=1).tolist() == 9 * [127]


def test_rows_of_zeros_and_of_the_least_values_stay_finite(tmp_path: Path) -> None:
    weight = torch.tensor([[0.0, 0.0], [1e-44, -1e-45], [3e38, -3e38]])
    read = as_int8(tmp_path, {"w": weight})
    assert bool((read["w.scale"] >= torch.finfo(torch.float32).tiny).all())
    again = read["w"] * read["w.scale"][:, None]
    assert again[0].tolist() == [0.0, 0.0]
    assert torch.allclose(again, weight, rtol=1e-6, atol=1e-38)


def test_all_else_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_ett.publish.transforms.SLAB", 64)
    tensors = {
        "bias": numbered((40,)),
        "kernel": numbered((2, 3, 5)),
        "ids": numbered((6, 7), torch.int64),
        "no_rows": torch.empty(0, 4),
        "no_columns": torch.empty(4, 0),
        "single": torch.tensor(0.5),
    }
    read = as_int8(tmp_path, tensors)
    assert sorted(read) == sorted(tensors)
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor), name


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"w": torch.ones(2, 2), "w.scale": torch.ones(2)},
            r"int8 needs the name w\.scale, which is one of the model's tensors",
        ),
        (
            {"w": torch.tensor([[1e300, 1.0]], dtype=torch.float64)},
            "w has values that are too large for float",
        ),
    ],
)
def test_what_int8_cannot_hold_is_refused(
    tmp_path: Path, tensors: dict[str, Any], message: str
) -> None:
    with pytest.raises(PublishError, match=message):
        as_int8(tmp_path, tensors)
