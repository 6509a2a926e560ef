"""What a snapshot must do to pass: load into the factory's model and score a batch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from airflow_ett.publish import check
from airflow_ett.publish.usercode import code_version

pytestmark = pytest.mark.torch


def outcome(site: Any, *more: str, model: str = "ett_toy:build") -> dict[str, Any]:
    weights, result = site.root / "weights", site.root / "result"
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    save_file(network.state_dict(), weights)
    flags = ["--weights", str(weights), "--model", model, "--result", str(result)]
    check.main([*flags, "--tolerance", "0.1", *more])
    fields: dict[str, Any] = json.loads(Path(result).read_text())
    return fields


def test_the_module_gives_the_batch(site: Any) -> None:
    expected = {"inputs": "ett_toy:example_batch", "shapes": [[5, 1]], "in_memory": None}
    assert outcome(site)["ok"]["check"] == expected


def test_a_batch_may_be_keywords(site: Any) -> None:
    expected = {"inputs": "ett_toy:keywords", "shapes": [[2, 1]], "in_memory": None}
    assert outcome(site, "--batch", "ett_toy:keywords")["ok"]["check"] == expected


def test_a_batch_may_be_a_list_of_arguments(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ett_toy.example_batch", lambda: [torch.ones(6, 3)], raising=True)
    assert outcome(site)["ok"]["check"]["shapes"] == [[6, 1]]


def test_without_a_batch_it_only_loads_and_says_so(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("ett_toy.example_batch")
    expected = {"inputs": None, "shapes": None, "in_memory": None}
    assert outcome(site)["ok"]["check"] == expected


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        ("ett_toy:other_build", None, "size mismatch for 2.weight"),
        ("ett_toy:missing", None, "no attribute 'missing'"),
        ("ett_nowhere:build", None, "No module named 'ett_nowhere'"),
        ("ett_toy:raising", None, "RuntimeError: no such config"),
        ("ett_toy:example_batch", None, "returned Tensor, not a torch.nn.Module"),
        ("ett_toy:build_flat", None, "5 rows gave an output of shape ()"),
        ("ett_toy:build", "ett_toy:infinite", "some scores are NaN or infinite"),
        ("ett_toy:build", "ett_toy:raising", "no such config"),
        ("ett_toy:build", "ett_toy:words", "inputs: expected tensors, not str"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    site: Any, model: str, batch: str | None, message: str
) -> None:
    error = outcome(site, *(("--batch", batch) if batch else ()), model=model)["error"]
    assert message in error
    assert "\n" not in error


def test_an_endless_message_is_cut(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    many = nn.ModuleList(nn.Linear(1, 1) for _ in range(500))
    monkeypatch.setattr("ett_toy.build", lambda: many)
    error = outcome(site)["error"]
    assert len(error) < 5000
    assert error.startswith("RuntimeError: Error(s) in loading state_dict for ModuleList")


class Bags(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Takes ids of all rows, and where each row's begin; returns what is nested."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(9, 2)

    def forward(self, ids: Any, offsets: Any) -> Any:
        """Return scores, and two more."""
        return {"scores": self.table(ids, offsets), "more": (self.table(ids, offsets), None)}


def test_rows_may_be_those_of_any_input_and_outputs_nested(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file(Bags().state_dict(), site.root / "bags")
    monkeypatch.setattr("ett_toy.build", Bags)
    batch = (torch.arange(9), torch.tensor([0, 3, 6]))
    monkeypatch.setattr("ett_toy.example_batch", lambda: batch)
    told = check.check(site.root / "bags", "ett_toy:build", "", 0.1)
    assert told["check"]["shapes"] == [[3, 2], [3, 2]]


def test_with_the_trainers_scores_an_output_may_have_any_shape(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, golden = nn.Sequential(nn.Linear(3, 4), nn.Flatten(0)), site.root / "golden"
    save_file(model.state_dict(), site.root / "flat")
    monkeypatch.setattr("ett_toy.build", lambda: nn.Sequential(nn.Linear(3, 4), nn.Flatten(0)))
    batch = torch.ones(5, 3)
    save_file({"inputs.0": batch, "scores.0": model(batch).detach()}, golden)
    told = check.check(site.root / "flat", "ett_toy:build", "", 0.1, golden=golden)
    assert told["check"]["difference"] == 0


def test_it_scores_in_evaluation_mode(site: Any) -> None:
    assert "ok" in outcome(site, model="ett_toy:build_serving")


def test_it_says_which_code_the_factory_is(site: Any) -> None:
    content = (site.root / "code" / "ett_toy.py").read_bytes()
    assert outcome(site)["ok"]["code"] == {
        "module": "ett_toy",
        "sha256": hashlib.sha256(content).hexdigest(),
        "distribution": [],
    }


def test_the_distribution_of_installed_code_is_named() -> None:
    told = code_version("safetensors.torch:save_file")
    assert told["distribution"] == [f"safetensors {importlib.metadata.version('safetensors')}"]
