"""A publishing task without an Airflow, and scripts that stand for its publisher."""

from __future__ import annotations

import json
import stat
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

import airflow_ett.hooks.following as following
from airflow_ett.events import AttemptId, Event, JobKey, Kind, LogWriter, RunDir, read_log
from airflow_ett.operators import ModelPublishOperator

RESULT = {
    "version": "2000-ab",
    "uri": "/r/m/2000-ab",
    "digest": "d",
    "name": "m",
    "registry": "/r",
    "bytes": 7,
    "cursor": 2000,
    "begin_ns": 5,
    "end_ns": 9,
    "existed": False,
}
TRAINED = JobKey("default", "dag", "run", "train")
ASKED: dict[str, Any] = {"model": "pkg.m:build", "registry": "/r", "name": "m"}


def script(folder: Path, *lines: str) -> str:
    """Make an executable that stands for the interpreter of the publisher."""
    path = folder / "python"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def says(**other: Any) -> str:
    """The line of a script that tells a result."""
    return f"echo '{json.dumps(RESULT | other)}'"


def task(**parameters: Any) -> Any:
    """Return a task that publishes ``/c`` unless told otherwise."""
    return ModelPublishOperator(**{"task_id": "publish", "checkpoint": "/c", **ASKED, **parameters})


def context(try_number: int = 1, max_tries: int = 0, task_id: str = "publish") -> dict[str, Any]:
    """Return what Airflow hands to a try."""
    ti = {"dag_id": "dag", "run_id": "run", "task_id": task_id, "map_index": -1}
    tries = {"try_number": try_number, "max_tries": max_tries}
    events: Any = defaultdict(lambda: SimpleNamespace(extra={}))
    return {"ti": SimpleNamespace(**ti, **tries), "outlet_events": events}


def execute(operator: Any, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a try as the task runner would; raises :class:`TaskDeferred` where it waits."""
    output: dict[str, Any] = type(operator).execute.__wrapped__(operator, given or context())
    return output


def resume(operator: Any, deferred: TaskDeferred, event: dict[str, Any]) -> dict[str, Any]:
    """Go on as the task runner would when the trigger has fired."""
    event = {"late": False, **event, "state": deferred.trigger.state}
    output: dict[str, Any] = getattr(operator, deferred.method_name)(context(), event)
    return output


def published_events(run: RunDir) -> list[Event]:
    """Return what a training's log says of published versions."""
    events = [event for path in run.logs() for event in read_log(path).events]
    return [event for event in events if event.kind == Kind.PUBLISHED]


class Training:
    """The log of a training of the run, and what Airflow says of its task."""

    def __init__(
        self, folder: Path, write_job: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = {"dag_id": "dag", "run_id": "run", "task_id": "train"}
        self.run = write_job(folder / "runs", ended=False, **key)
        self.state: str | Exception = "running"
        self.asked: list[dict[str, Any]] = []
        monkeypatch.setattr(following, "airflow_state", self._airflow_state)
        monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(folder / "runs"))
        monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{folder}/none.db")

    def commit(self, cursor: int, place: str | None = None) -> None:
        """Commit another checkpoint, at a place where there is none unless told otherwise."""
        writer = f"trainer-2.0.0-r0-p{cursor}"
        path = self.run.nodes / f"{writer}.jsonl"
        log = LogWriter(path, job=TRAINED.id, writer=writer, attempt=AttemptId(2), rank=0)
        saved = {"checkpoint": place or f"file:///c/{cursor}", "cursor": cursor}
        log.append("checkpoint_committed", saved)
        log.close()

    def _airflow_state(self, key: dict[str, Any]) -> str:
        self.asked.append(key)
        if isinstance(self.state, Exception):
            raise self.state
        return self.state
