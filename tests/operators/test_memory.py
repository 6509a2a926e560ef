"""A run root that is away at a later try begins no second training."""

from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import JobLogError


class Store(dict[str, Any]):
    """Airflow's task state, which outlives tries."""

    def set(self, key: str, value: Any, *, retention: Any) -> None:
        self[key] = value


def test_r01_a_try_whose_run_root_is_away_submits_nothing(desk: Any) -> None:
    task = desk.task("exit 1", unknown_grace=0.3)
    store, runs = Store(), Path(desk.root / "runs")
    with pytest.raises(Exception, match="exited with code 1"):
        desk.run(task, desk.context(1, 2, task_state_store=store))
    runs.rename(desk.root / "unmounted")
    with pytest.raises(JobLogError, match="Nothing was submitted"):
        desk.run(task, desk.context(2, 2, task_state_store=store))
    assert not runs.exists()


def test_r01_a_try_waits_for_its_run_root_and_goes_on(desk: Any, monkeypatch: Any) -> None:
    task = desk.task(f"echo x >> {desk.root}/starts; test $$(wc -l < {desk.root}/starts) = 2")
    store, runs = Store(), Path(desk.root / "runs")
    with pytest.raises(Exception, match="exited with code 1"):
        desk.run(task, desk.context(1, 1, task_state_store=store))
    runs.rename(desk.root / "unmounted")

    def mount(seconds: float) -> None:
        if not runs.exists():
            (desk.root / "unmounted").rename(runs)

    monkeypatch.setattr(task, "_pause", mount)
    result = desk.run(task, desk.context(2, 1, task_state_store=store))
    assert result["run_dir"].startswith(str(runs))
    assert [event.data["layer"] for event in desk.events("submitted")] == ["first", "airflow"]
