"""A try's hold on a job; triggers that may fire at once."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.launch.limits import Limits
from airflow_ett.launch.request import Request


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to finish deferring."""
    monkeypatch.setattr("airflow_ett.triggers.training.SOONEST_S", 0.0)


@pytest.fixture
def hold(tmp_path: Path) -> dict[str, Any]:
    key = {
        "deployment": "d",
        "dag_id": "dag",
        "run_id": "run",
        "task_id": "train",
        "map_index": -1,
        "generation": 1,
    }
    return {
        "key": key,
        "run_dir": str(tmp_path),
        "checkpoints": str(tmp_path / "checkpoints"),
        "inherit": None,
        "request": Request("train", ["--m", "x"], "local_detached").as_dict(),
        "try_number": 1,
        "max_tries": 2,
        "limits": asdict(Limits()),
    }
