"""Field reports that only a real Airflow can show: who stops a held task, and mapped instances."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_ett.events import JobKey, Layer
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(400)]

ENDINGS = {
    # what is done: Airflow's state afterwards, tries, causes of the attempts, callbacks, claims.
    # Airflow's scheduler itself takes a clear of a running task for a retry.
    "evicted": ("success", 1, [None], ["success"], ["task", "again"]),
    "cleared": (
        "success",
        2,
        ["user_restart", None],
        ["retry", "skipped", "success"],
        ["task"] * 2,
    ),
    "failed": ("failed", 1, ["user_cancelled"], ["failure"], ["task"]),
    "success": ("success", 1, ["user_cancelled"], ["skipped"], ["task"]),
}


def test_r11_held_tasks_that_are_stopped_end_as_airflow_expects(train: Any) -> None:
    """Field reports R11 and R05: an eviction keeps the training and costs no retry."""
    first = train("training_diary", steps=500)
    trainings = {"evicted": first}
    for how in list(ENDINGS)[1:]:
        other = replace(first, run_id=f"{first.run_id}-{how}", place=first.place.parent / how)
        trainings[how] = other
        conf = {"place": str(other.place), "steps": 200}
        other.api.trigger(other.dag_id, other.run_id, conf)
    processes = {}
    for how, training in trainings.items():
        training.until_cursor(20)
        processes[how] = psutil.Process(training.watching_pid())
        stop(how, training, processes[how])
    for how, training in trainings.items():
        state, tries, causes, callbacks, claims = ENDINGS[how]
        training.until(lambda how=how: not processes[how].is_running(), seconds=20)
        assert training.end() == state
        task = training.api.task(training.dag_id, training.run_id, "train")
        assert (how, task["state"], task["try_number"]) == (how, state, tries)
        assert [event.data["cause"] for event in training.events("attempt_ended")] == causes
        assert [event.data["mode"] for event in training.events("claimed")] == claims
        assert diary(training, len(callbacks)) == callbacks
        assert training.never_twice()


def stop(how: str, training: Any, process: psutil.Process) -> None:
    """Evict the worker (its supervisor gets SIGTERM), clear the task or mark it."""
    if how == "evicted":
        process.parent().send_signal(signal.SIGTERM)
    elif how == "cleared":
        training.api.clear(training.dag_id, training.run_id, "train")
    else:
        training.api.mark(training.dag_id, training.run_id, "train", how)


def diary(training: Any, words: int) -> list[str]:
    """Return which of Airflow's callbacks ran, sorted, once there are so many."""
    path = training.place / "callbacks"
    training.until(lambda: path.exists() and len(path.read_text().split()) >= words, seconds=15)
    return sorted(path.read_text().split())


def test_r04_a_mapped_instance_adopts_its_own_training_only(train: Any) -> None:
    training = train("training_mapped", steps=300)

    def log(index: int) -> StorageLog:
        key = JobKey("default", training.dag_id, training.run_id, "train", index)
        return StorageLog(FolderStorage(training.stack.home / "ett" / "runs" / key.path), key)

    def events(index: int, kind: str) -> list[Any]:
        return [event for event in log(index).launcher_events() if event.kind == kind]

    places = [training.place / str(index) for index in range(3)]
    training.until(lambda: all((place / "cursor").exists() for place in places))
    owner = events(1, "claimed")[-1].data["owner"]
    os.kill(int(owner.rpartition(":")[2]), signal.SIGKILL)
    assert training.end() == "success"
    handles = set()
    for index, place in enumerate(places):
        assert [event.data["layer"] for event in events(index, "submitted")] == [Layer.FIRST]
        assert len(events(index, "adopted")) == (1 if index == 1 else 0)
        assert len(Path(place / "starts").read_text().splitlines()) == 1
        assert not (place / "duplicates").exists()
        handles.add(events(index, "submitted")[0].data["handle"])
    assert len(handles) == 3
    (adopted,) = events(1, "adopted")
    assert adopted.data["handle"] == events(1, "submitted")[0].data["handle"]
