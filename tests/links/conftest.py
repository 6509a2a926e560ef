"""Airflow's XComs as a dictionary, and a job to show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.sdk._shared.secrets_masker import reset_secrets_masker
from airflow.sdk.bases.xcom import BaseXCom


@pytest.fixture
def xcoms(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was pushed, by key; every push must name the same task instance."""
    stored: dict[str, Any] = {}
    owners: set[tuple[Any, ...]] = set()

    def push(key: str, value: Any, **owner: Any) -> None:
        owners.add(tuple(sorted(owner.items())))
        assert len(owners) == 1
        stored[key] = value

    monkeypatch.setattr(BaseXCom, "set", push)
    monkeypatch.setattr(BaseXCom, "get_one", lambda key, **_: stored.get(key))
    return stored


@pytest.fixture
def key() -> dict[str, Any]:
    """The fields of a job's key, with names that need quoting in addresses."""
    return {
        "deployment": "default",
        "dag_id": "ranker",
        "run_id": "manual__2026-01-01T00:00:00+00:00/a?b#c",
        "task_id": "group.train",
        "map_index": -1,
        "generation": 2,
    }


@pytest.fixture
def _fresh_masker() -> Iterator[None]:
    yield
    reset_secrets_masker()
