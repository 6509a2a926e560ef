"""What a snapshot must do to pass: load into the factory's model and score a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from torch import nn

from airflow_ett.publish import check

pytestmark = pytest.mark.torch


def outcome(site: Any, *more: str, model: str = "ett_toy:build") -> dict[str, Any]:
    weights, result = site.root / "weights", site.root / "result"
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    save_file(network.state_dict(), weights)
    check.main(["--weights", str(weights), "--model", model, "--result", str(result), *more])
    fields: dict[str, Any] = json.loads(Path(result).read_text())
    return fields


def test_the_module_gives_the_batch(site: Any) -> None:
    expected = {"inputs": "ett_toy:example_batch", "shapes": [[5, 1]]}
    assert outcome(site) == {"ok": expected}


def test_a_golden_batch_may_be_keywords(site: Any) -> None:
    expected = {"inputs": "ett_toy:keywords", "shapes": [[2, 1]]}
    assert outcome(site, "--golden", "ett_toy:keywords") == {"ok": expected}


def test_without_a_batch_it_only_loads_and_says_so(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("ett_toy.example_batch")
    assert outcome(site) == {"ok": {"inputs": None, "shapes": None}}


@pytest.mark.parametrize(
    ("model", "golden", "message"),
    [
        ("ett_toy:other_build", None, "size mismatch for 2.weight"),
        ("ett_toy:missing", None, "no attribute 'missing'"),
        ("ett_nowhere:build", None, "No module named 'ett_nowhere'"),
        ("ett_toy:raising", None, "RuntimeError: no such config"),
        ("ett_toy:build_flat", None, "5 rows gave an output of shape ()"),
        ("ett_toy:build", "ett_toy:infinite", "some scores are NaN or infinite"),
        ("ett_toy:build", "ett_toy:raising", "no such config"),
        ("ett_toy:build", "ett_toy:words", "expected tensors, not str"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    site: Any, model: str, golden: str | None, message: str
) -> None:
    error = outcome(site, *(("--golden", golden) if golden else ()), model=model)["error"]
    assert message in error
    assert "\n" not in error


def test_it_scores_in_evaluation_mode(site: Any) -> None:
    assert "ok" in outcome(site, model="ett_toy:build_serving")
