"""The listener: what it notes, what it leaves alone, and that it is never in Airflow's way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pluggy
import pytest

pytest.importorskip("airflow")

from airflow.listeners.spec import dagrun
from airflow.sdk._shared.listeners.spec import taskinstance

from airflow_ett import listener
from airflow_ett.events import JobKey, RunDir
from airflow_ett.hooks.notes import AIRFLOW, USER, Note, read_notes
from airflow_ett.storage import FolderStorage
from airflow_ett.ui.plugin import EttPlugin


@pytest.fixture
def hook() -> Any:
    """Airflow's hooks with our listener alone."""
    manager = pluggy.PluginManager("airflow")
    manager.add_hookspecs(taskinstance)
    manager.add_hookspecs(dagrun)
    manager.register(listener)
    manager.check_pending()
    return manager.hook


@pytest.fixture
def job(
    tmp_path: Path, write_job: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> RunDir:
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path))
    return write_job(tmp_path, ended=False)


def task(**fields: Any) -> Any:
    known = {"dag_id": "ranker", "run_id": "run-1", "task_id": "train", "map_index": -1}
    return SimpleNamespace(**{**known, "try_number": 2, "state": "failed", **fields})


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "ett-note":
            thread.join(10)


def test_airflow_gets_it_from_the_plugin() -> None:
    assert EttPlugin.listeners == [listener]


@pytest.mark.parametrize("state", ["success", "failed", "skipped"])
def test_a_users_mark_is_noted(hook: Any, job: RunDir, state: str) -> None:
    arguments = {"previous_state": None, "task_instance": task()}
    if state == "failed":
        arguments["error"] = "set by hand"
    getattr(hook, f"on_task_instance_{state}")(**arguments)
    settle()
    text = "set by hand" if state == "failed" else ""
    assert read_notes(FolderStorage(job.path)) == [Note(state, USER, 2, text)]


@pytest.mark.parametrize("state", ["failed", "up_for_retry"])
def test_a_task_that_the_scheduler_lost_is_noted(hook: Any, job: RunDir, state: str) -> None:
    lost = {"previous_state": "running", "error": "no heartbeat " + "x" * 1000}
    hook.on_task_instance_failed(task_instance=task(state=state), **lost)
    settle()
    (note,) = read_notes(FolderStorage(job.path))
    assert (note.state, note.by, len(note.text)) == (state, AIRFLOW, 500)


def test_a_task_process_notes_nothing(hook: Any, job: RunDir) -> None:
    for state in ("success", "skipped"):
        getattr(hook, f"on_task_instance_{state}")(previous_state="running", task_instance=task())
    error = {"previous_state": "running", "error": ValueError("by itself")}
    hook.on_task_instance_failed(task_instance=task(), **error)
    settle()
    assert read_notes(FolderStorage(job.path)) == []


def test_another_operators_task_leaves_nothing_behind(hook: Any, job: RunDir) -> None:
    before = sorted(job.path.parents[2].rglob("*"))
    hook.on_task_instance_success(previous_state=None, task_instance=task(task_id="clean"))
    settle()
    assert sorted(job.path.parents[2].rglob("*")) == before


def test_a_run_root_that_cannot_be_written_raises_nothing(
    hook: Any, job: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", "not/absolute")
    hook.on_task_instance_success(previous_state=None, task_instance=task())
    settle()
    assert "run_root" in caplog.text


def test_a_task_that_cannot_be_read_raises_nothing(
    hook: Any, job: RunDir, caplog: pytest.LogCaptureFixture
) -> None:
    hook.on_task_instance_success(previous_state=None, task_instance=object())
    settle()
    assert "could not note" in caplog.text


def test_a_run_root_that_hangs_holds_nobody_up(
    hook: Any, job: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    done: list[bool] = []
    monkeypatch.setattr(listener, "write_note", lambda *_: done.append(answer.wait(20)))
    hook.on_task_instance_success(previous_state=None, task_instance=task())
    assert done == []
    answer.set()
    settle()
    assert done == [True]


def test_no_more_than_a_few_threads_wait_for_a_run_root_that_hangs(
    hook: Any, job: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may mark a DAG run of a hundred mapped trainings: each mark is noted."""
    answer, lock = threading.Event(), threading.Lock()
    noted: list[int] = []
    at_once = [0, 0]

    def write(run_root: Path, key: JobKey, note: Note) -> None:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        answer.wait(20)
        with lock:
            at_once[0] -= 1
            noted.append(key.map_index)

    monkeypatch.setattr(listener, "write_note", write)
    for number in range(100):
        hook.on_task_instance_success(previous_state=None, task_instance=task(map_index=number))
    answer.set()
    settle()
    assert sorted(noted) == list(range(100))
    assert at_once == [0, 4]


def test_what_does_not_fit_into_the_line_is_told(
    hook: Any, job: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full: queue.Queue[Any] = queue.Queue(1)
    full.put(None)
    monkeypatch.setattr(listener, "_waiting", full)
    hook.on_task_instance_success(previous_state=None, task_instance=task())
    assert "not noted that" in " ".join(caplog.text.split())
    assert read_notes(FolderStorage(job.path)) == []
