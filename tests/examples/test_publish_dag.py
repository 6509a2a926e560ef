"""The DAG that publishes beside its training, and the one that follows it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow_ett.operators import model_asset


@pytest.fixture(scope="module")
def module(repo: Path) -> Any:
    path = repo / "dags" / "example_ett_publish.py"
    spec = importlib.util.spec_from_file_location("example_publish", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_it_publishes_beside_the_training(module: Any) -> None:
    assert module.publish.training == module.train.task_id
    assert module.publish.upstream_task_ids == set()


def test_the_other_follows_what_it_publishes(module: Any) -> None:
    assert module.publish.outlets == [model_asset(module.publish.name)]
    assert module.follow.schedule == [model_asset("ranker-live")]
