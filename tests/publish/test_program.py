"""The program of ``torch.export`` beside the weights: it scores alone, or why there is none."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from airflow_ett.publish import program
from airflow_ett.publish.loading import load_weights
from airflow_ett.publish.program import export
from tests.publish import zoo
from tests.publish.test_loading import ZOO, write

pytestmark = pytest.mark.torch


def scored(path: Path, inputs: Any) -> Any:
    module = torch.export.load(path).module()
    return module(**inputs) if isinstance(inputs, dict) else module(inputs)


def test_a_program_takes_any_number_of_rows(tmp_path: Path) -> None:
    model = zoo.trained(zoo.ranker())
    told = export(model, zoo.batch(), tmp_path / "model.pt2", 1e-4)
    assert told == {"file": "model.pt2", "rows": "any"}
    for rows in (1, 3, 7):
        inputs = {name: tensor[:rows] for name, tensor in zoo.batch().items()}
        torch.testing.assert_close(scored(tmp_path / "model.pt2", inputs), model(**inputs))


def test_a_program_of_a_cast_model_takes_what_the_model_takes(tmp_path: Path) -> None:
    write(tmp_path, zoo.trained(zoo.ranker()), "ranker", ["bfloat16"])
    model = load_weights(tmp_path / "model.safetensors", f"{ZOO}:ranker", ["bfloat16"]).module
    assert "file" in export(model, zoo.batch(), tmp_path / "model.pt2", 1e-4)
    assert scored(tmp_path / "model.pt2", zoo.batch()).dtype == torch.bfloat16


@pytest.mark.parametrize(("factory", "rows"), [("Rowed", 5), ("scaled", 1), ("Extra", 1)])
def test_a_number_of_rows_that_is_fixed_is_told(tmp_path: Path, factory: str, rows: int) -> None:
    model = getattr(zoo, factory)().eval()
    told = export(model, zoo.values()[:rows], tmp_path / "model.pt2", 1e-4)
    assert told == {"file": "model.pt2", "rows": rows}


def test_ids_and_where_their_rows_begin_are_free_both(tmp_path: Path) -> None:
    model = nn.EmbeddingBag(10, 4).eval()
    told = export(model, (torch.arange(9), torch.tensor([0, 3, 6])), tmp_path / "model.pt2", 1e-4)
    assert told == {"file": "model.pt2", "rows": "any"}
    program = torch.export.load(tmp_path / "model.pt2").module()
    other = torch.arange(7), torch.tensor([0, 3, 4, 6])
    torch.testing.assert_close(program(*other), model(*other))


def test_an_input_of_a_fixed_size_leaves_the_rows_free(tmp_path: Path) -> None:
    model = zoo.Weighted().eval()
    batch = {"value": zoo.values(), "weight": torch.ones(3)}
    told = export(model, batch, tmp_path / "model.pt2", 1e-4)
    assert told == {"file": "model.pt2", "rows": "any"}


def test_scores_of_nothing_but_zeros_are_no_difference(tmp_path: Path) -> None:
    model = nn.Linear(3, 1).eval()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    assert "file" in export(model, zoo.values(), tmp_path / "model.pt2", 1e-4)


def test_a_full_disk_is_no_reason_to_go_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        export(zoo.ranker().eval(), zoo.batch(), tmp_path / "model.pt2", 1e-4)


def test_why_a_model_has_no_program_is_told(tmp_path: Path) -> None:
    told = export(zoo.trained(zoo.Choosy()), zoo.values(), tmp_path / "model.pt2", 1e-4)
    assert "Could not guard on data-dependent expression" in told["refused"]
    assert list(tmp_path.iterdir()) == []


def test_an_int8_model_has_none(tmp_path: Path) -> None:
    write(tmp_path, zoo.trained(zoo.ranker()), "ranker", ["int8"])
    model = load_weights(tmp_path / "model.safetensors", f"{ZOO}:ranker", ["int8"]).module
    told = export(model, zoo.batch(), tmp_path / "model.pt2", 1e-4)
    assert told == {"refused": "torch.export cannot export layers that compute in int8"}


def test_without_a_batch_there_is_none(tmp_path: Path) -> None:
    told = export(zoo.ranker(), None, tmp_path / "model.pt2", 1e-4)
    assert told == {"refused": "there is no batch to trace the model with"}


def test_a_program_that_scores_otherwise_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = torch.export.export(zoo.trained(zoo.scaled(), seed=9), (zoo.values(),))
    monkeypatch.setattr(program, "_traced", lambda *args: (other, True))
    told = export(zoo.trained(zoo.scaled()), zoo.values(), tmp_path / "model.pt2", 1e-4)
    assert "its scores differ by" in told["refused"]
    assert list(tmp_path.iterdir()) == []
