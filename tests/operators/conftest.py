"""Training tasks on a run root and a ``local_detached`` of their own, without an Airflow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

import airflow_ett.operators.stopping as stopping
import airflow_ett.operators.training as operator_module
import airflow_ett.triggers.training as trigger_module
from airflow_ett.events import Event, JobKey, JobState, RunDir
from airflow_ett.launch.schedulers.appdir import AppDir
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.launch.schedulers.processes import kill_all
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.operators import TorchXTrainingOperator
from airflow_ett.storage import FolderStorage

COMPONENT = """
from torchx.specs import AppDef, Role

def shell(*lines: str) -> AppDef:
    return AppDef(name="app", roles=[
        Role(name=f"trainer{number}", image="", entrypoint="/bin/sh", args=["-c", line])
        for number, line in enumerate(lines)
    ])
"""


@dataclass
class Desk:
    """Runs tries of one task instance; a test sets ``state``, which Airflow would say it is in."""

    root: Path
    key: JobKey = field(default_factory=lambda: JobKey("default", "dag", "run", "train"))
    state: str = "running"

    def task(self, *lines: str, **options: Any) -> Any:
        """Return a task whose trainer has a role for each line of shell."""
        component = self.root / "component.py"
        component.write_text(COMPONENT)
        known = {"poll_interval": 0.1, "deferrable": False, "cfg": {"grace_s": 2}}
        return TorchXTrainingOperator(
            task_id="train",
            component=f"{component}:shell",
            component_args=["--", *lines],
            **{**known, **options},
        )

    @property
    def until_fired(self) -> str:
        """A trainer that runs until a trigger watches it: its task is deferred for certain."""
        return f"while ! [ -e {self.root}/fired ]; do sleep 0.05; done"

    def context(self, try_number: int = 1, max_tries: int = 0, **values: Any) -> dict[str, Any]:
        """Return what Airflow hands to a try."""
        key = self.key
        ti = {"dag_id": key.dag_id, "run_id": key.run_id, "task_id": key.task_id}
        tries = {"try_number": try_number, "max_tries": max_tries, "map_index": key.map_index}
        return {"ti": SimpleNamespace(**ti, **tries), **values}

    def run(self, task: Any, context: dict[str, Any]) -> Any:
        """Run a try in its own mode to its end, as task runner and triggerer would."""
        try:
            return type(task).execute.__wrapped__(task, context)
        except TaskDeferred as deferred:
            return self.resume(task, context, deferred, self.fire(deferred))

    def fire(self, deferred: TaskDeferred) -> dict[str, Any]:
        """Run a deferred try's trigger, rebuilt from what is stored of it; return its payload."""
        (self.root / "fired").touch()
        _, kwargs = deferred.trigger.serialize()

        async def first() -> Any:
            async for event in trigger_module.TrainingTrigger(**kwargs).run():
                return event.payload
            return None

        payload: dict[str, Any] = asyncio.run(asyncio.wait_for(first(), 60))
        return payload

    def resume(self, task: Any, context: Any, deferred: TaskDeferred, payload: Any) -> Any:
        """Go on with the task when its trigger has fired."""
        kwargs = {**(deferred.kwargs or {}), "event": payload}
        return task.resume_execution(deferred.method_name, kwargs, context)

    def events(self, kind: str, generation: int = 1) -> list[Event]:
        run_dir = RunDir(self.root / "runs" / self.key.base / f"g{generation}")
        log = StorageLog(FolderStorage(run_dir.path), self.key)
        return [event for event in log.launcher_events() if event.kind == kind]

    def causes(self) -> list[str | None]:
        return [event.data["cause"] for event in self.events("attempt_ended")]

    def job_state(self) -> JobState | None:
        ends = self.events("job_ended")
        return JobState(ends[-1].data["state"]) if ends else None

    @property
    def scheduler(self) -> LocalDetached:
        return LocalDetached("ett", self.root / "apps")

    def app_states(self) -> list[str]:
        """Return the scheduler's word on every app that it has."""
        details = [self.scheduler.detail(path.name) for path in (self.root / "apps").glob("*")]
        return [str(detail.state) for detail in details if detail is not None]

    def until(self, true: Callable[[], Any], timeout_s: float = 15) -> None:
        limit = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < limit, "it did not happen in time"
            time.sleep(0.02)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk; whatever its trainings left running is ended afterwards."""
    desk = Desk(tmp_path)
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("AIRFLOW__ETT__LOCAL_STATE_DIR", str(tmp_path / "apps"))
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    for module in (stopping, trigger_module):
        monkeypatch.setattr(module, "airflow_state", lambda key: desk.state)
    for module in (operator_module, trigger_module):
        monkeypatch.setattr(module, "LinkBoard", lambda key: lambda find, now=False: None)
    monkeypatch.setattr(trigger_module, "SOONEST_S", 0.0)
    yield desk
    for folder in (tmp_path / "apps").glob("*"):
        desk.scheduler.cancel(folder.name)
        kill_all(AppDir(folder).processes, timeout_s=5)
