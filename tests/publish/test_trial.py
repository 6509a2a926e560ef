"""A snapshot is tried in a fresh process, with what the checkpoint says the trainer scored."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from airflow_ett.checkpoints import Checkpoint, open_checkpoint
from airflow_ett.errors import PublishError
from airflow_ett.publish import Request
from airflow_ett.publish.trial import try_snapshot

pytestmark = pytest.mark.torch


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """A folder with weights alone, as the publisher has it before the trial."""
    folder = tmp_path / "staged"
    folder.mkdir()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    save_file(model.state_dict(), folder / "model.safetensors")
    return folder


def with_golden(site: Any, staged: Path, off: float = 0.0) -> Checkpoint:
    """Commit a checkpoint whose trainer scored a batch so, with one score ``off``."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    model.load_state_dict(load_file(staged / "model.safetensors"))
    inputs = torch.linspace(-1, 1, 12).reshape(4, 3)
    scores = model(inputs).detach()
    scores[2] += off
    folder = site.save()
    save_file({"inputs.0": inputs, "scores.0": scores}, folder / "golden.safetensors")
    return open_checkpoint(str(site.commit(folder)))


def request(site: Any, source: Checkpoint, **more: Any) -> Request:
    return Request(**{**site.arguments(source.path), **more})


def test_the_trainers_scores_are_compared_and_a_program_written(site: Any, staged: Path) -> None:
    source = with_golden(site, staged)
    wanted = request(site, source, transforms=("export",), tolerance=0.25)
    told = try_snapshot(staged, wanted, source)
    check = told["check"]
    assert check["inputs"] == "golden.safetensors of the checkpoint"
    assert check["shapes"] == [[4, 1]]
    assert check["tolerance"] == 0.25
    assert 0 <= check["difference"] < 1e-5
    assert told["program"] == {"file": "model.pt2", "rows": "any"}
    assert told["code"]["module"] == "ett_toy"
    json.dumps(told)
    names = sorted(path.name for path in staged.iterdir())
    assert names == ["model.pt2", "model.safetensors"]


def test_what_differs_from_the_trainers_scores_is_refused(site: Any, staged: Path) -> None:
    source = with_golden(site, staged, off=0.5)
    with pytest.raises(PublishError, match=r"by up to 0\.5, in row 2: .* here, .* in training"):
        try_snapshot(staged, request(site, source), source)
    assert [path.name for path in staged.iterdir()] == ["model.safetensors"]


def test_a_function_of_the_users_comes_before_the_trainers_batch(site: Any, staged: Path) -> None:
    source = with_golden(site, staged, off=0.5)
    told = try_snapshot(staged, request(site, source, golden="ett_toy:keywords"), source)
    assert told["check"]["inputs"] == "ett_toy:keywords"
    assert "difference" not in told["check"]
    assert "program" not in told


def test_half_a_result_of_a_full_disk_is_none(
    site: Any, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_checkpoint(str(site.save()))

    def run(command: list[str], **_: Any) -> Any:
        Path(command[command.index("--result") + 1]).write_text('{"ok"')
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(PublishError, match="ett_toy:build ended with 1 and no result"):
        try_snapshot(staged, request(site, source), source)


def test_a_process_that_dies_is_named(site: Any, staged: Path) -> None:
    source = open_checkpoint(str(site.save()))
    with pytest.raises(PublishError, match="ett_toy:build ended with 7 and no result"):
        try_snapshot(staged, request(site, source, golden="tests.publish.zoo:leave"), source)
    assert [path.name for path in staged.iterdir()] == ["model.safetensors"]
