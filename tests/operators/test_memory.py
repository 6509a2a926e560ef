"""A run root that is away at a later try begins no second training."""

from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import JobLogError
from airflow_ett.events import JobState


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


@pytest.mark.parametrize("option", ["RUN_ROOT", "DEPLOYMENT"])
def test_r01_a_try_under_another_configuration_begins_no_second_training(
    desk: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    task, store = desk.task("sleep 60", unknown_grace=0.3), Store()
    with monkeypatch.context() as killed:
        killed.setattr(task, "_watch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            desk.run(task, desk.context(1, 2, task_state_store=store))
    with monkeypatch.context() as changed:
        changed.setenv(f"AIRFLOW__ETT__{option}", str(tmp_path / "other"))
        with pytest.raises(JobLogError, match=r"was begun in .*\[ett\] run_root and deployment"):
            desk.run(task, desk.context(2, 2, task_state_store=store))
    assert desk.app_states() == ["RUNNING"]
    assert desk.events("cancel_requested") == []


def test_a_success_is_reported_to_a_later_try_of_the_same_run_alone(desk: Any) -> None:
    """A run was deleted and made again; its first try dies before it claims the job."""
    store = Store()
    desk.run(desk.task("exit 0"), desk.context(1, 2, task_state_store=store))
    unheard = desk.run(desk.task("exit 0"), desk.context(2, 2, task_state_store=store))
    assert unheard["run_dir"].endswith("g1")
    assert len(desk.events("submitted")) == 1
    again = desk.run(desk.task("true"), desk.context(3, 2, task_state_store=Store()))
    assert again["run_dir"].endswith("g2")
    assert len(desk.events("submitted", generation=2)) == 1
    assert desk.job_state() is JobState.SUCCEEDED
