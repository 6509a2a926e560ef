"""A training that Airflow ended without telling anyone: reported, and cancelled where allowed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import JobKey
from airflow_ett.hooks.notes import AIRFLOW, USER, read_notes
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(400)]


@pytest.fixture
def roll_up(airflow_stack: Any, request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    """Run the rollup DAG with the reaper in one of its ways; return what the reaper said."""
    api = airflow_stack.api

    def run(way: str) -> list[str]:
        (airflow_stack.home / "reaper").write_text(way)
        api.wait_for_dag("rollup")
        run_id = api.trigger("rollup", f"{request.node.name}-{way}")
        assert api.wait_for_run("rollup", run_id) == "success"
        said: list[str] = api.xcom("rollup", run_id, "reap")
        return said

    return run


@pytest.fixture
def no_triggerer(airflow_stack: Any) -> Iterator[Callable[[], None]]:
    """Kill the triggerer on demand; it is back after the test."""
    yield lambda: airflow_stack.stop_component("triggerer", grace_s=0)
    airflow_stack.start_component("triggerer")
    airflow_stack.wait_healthy()


def test_an_orphan_is_reported_then_cancelled_once_and_a_healthy_task_left_alone(
    train: Any,
    roll_up: Callable[[str], list[str]],
    no_triggerer: Callable[[], None],
    tmp_path: Path,
) -> None:
    orphan = train("training_deferred", steps=8000)
    place = tmp_path / "healthy"
    healthy = replace(train("training_held", steps=8000, place=str(place)), place=place)
    for training in (orphan, healthy):
        training.until_cursor(3)
    orphan.until(lambda: orphan.events("claimed")[-1].data["mode"] == "trigger")
    no_triggerer()
    orphan.api.mark(orphan.dag_id, orphan.run_id, "train", "failed")
    (note,) = orphan.until(lambda: read_notes(FolderStorage(orphan.run_dir().path)))
    assert (note.state, note.by, note.try_number) == ("failed", USER, 1)
    claims = len(healthy.events("claimed"))

    (line,) = roll_up("report")
    assert orphan.run_id in line
    assert "task is failed: would be cancelled with [ett] reaper = cancel" in line
    assert line.endswith("cause user_cancelled")
    assert orphan.events("cancel_requested") == []
    assert not orphan.trainer_is_gone()

    (line,) = roll_up("cancel")
    assert line.endswith("closed as cancelled, cause user_cancelled")
    orphan.until(orphan.trainer_is_gone)
    (cancel,) = orphan.events("cancel_requested")
    assert cancel.data["reason"] == "user_cancelled"
    (end,) = orphan.events("job_ended")
    assert (end.data["state"], end.data["cause"]) == ("cancelled", "user_cancelled")
    assert len(orphan.starts()) == 1

    assert len(healthy.events("claimed")) == claims
    assert healthy.events("cancel_requested") == []
    assert not healthy.trainer_is_gone()
    healthy.api.mark(healthy.dag_id, healthy.run_id, "train", "success")
    healthy.until(healthy.trainer_is_gone)


def test_a_deleted_run_leaves_an_orphan_and_an_unknown_dag_no_evidence(
    train: Any, roll_up: Callable[[str], list[str]], no_triggerer: Callable[[], None]
) -> None:
    orphan = train("training_deferred", steps=8000)
    orphan.until_cursor(3)
    orphan.until(lambda: orphan.events("claimed")[-1].data["mode"] == "trigger")
    no_triggerer()
    orphan.api.mark(orphan.dag_id, orphan.run_id, "train", "failed")
    assert orphan.end() == "failed"
    orphan.api.request("DELETE", f"/dags/{orphan.dag_id}/dagRuns/{orphan.run_id}")
    stranger = JobKey("default", "a_dag_of_another_airflow", orphan.run_id, "train")
    log = StorageLog(FolderStorage(orphan.stack.home / "ett" / "runs" / stranger.path), stranger)
    log.claim(try_number=1, max_tries=0, mode="task")
    opened = {"key": asdict(stranger), "scheduler": "local_detached", "component": "train"}
    log.append("job_opened", opened)
    told = len(log.launcher_events())

    (line,) = roll_up("cancel")
    assert "training_deferred" in line
    assert line.endswith("task is removed: closed as cancelled, cause user_cancelled")
    orphan.until(orphan.trainer_is_gone)
    assert len(orphan.events("cancel_requested")) == 1
    assert len(log.launcher_events()) == told


def test_a_task_process_that_was_killed_is_noted_by_the_scheduler(train: Any) -> None:
    training = train("training_held", steps=400)
    training.until_cursor(3)
    os.kill(training.watching_pid(), signal.SIGKILL)
    (note,) = training.until(lambda: read_notes(FolderStorage(training.run_dir().path)))
    assert (note.state, note.by) == ("up_for_retry", AIRFLOW)
    assert training.end() == "success"
    assert len(training.starts()) == 1
