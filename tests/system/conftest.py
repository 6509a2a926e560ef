"""A training in the session's Airflow, seen through its run directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Event, JobKey, RunDir, slug
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage


@dataclass
class Training:
    """One run of a training DAG."""

    stack: Any
    dag_id: str
    run_id: str
    place: Path

    @property
    def api(self) -> Any:
        return self.stack.api

    def run_dir(self, generation: int = 1) -> RunDir:
        key = JobKey("default", self.dag_id, self.run_id, "train", generation=generation)
        return RunDir(self.stack.home / "ett" / "runs" / key.path)

    def events(self, kind: str, generation: int = 1) -> list[Event]:
        key = JobKey("default", self.dag_id, self.run_id, "train")
        log = StorageLog(FolderStorage(self.run_dir(generation).path), key)
        return [event for event in log.launcher_events() if event.kind == kind]

    def watching_pid(self) -> int:
        """Return the process that holds the newest claim."""
        return int(self.events("claimed")[-1].data["owner"].rpartition(":")[2])

    def cursor(self) -> int:
        try:
            return int((self.place / "cursor").read_text() or 0)
        except (FileNotFoundError, ValueError):
            return 0

    def starts(self) -> list[int]:
        """Return the process ids of the trainers, in order."""
        path = self.place / "starts"
        return [int(line.split()[0]) for line in path.read_text().splitlines()]

    def until(self, what: Callable[[], Any], seconds: float = 90) -> Any:
        limit = time.monotonic() + seconds
        while not (answer := what()):
            assert time.monotonic() < limit, f"{self.dag_id} {self.run_id}: waited {seconds} s"
            time.sleep(0.2)
        return answer

    def until_cursor(self, cursor: int) -> None:
        self.until(lambda: self.cursor() >= cursor)

    def end(self, seconds: float = 180) -> str:
        return str(self.api.wait_for_run(self.dag_id, self.run_id, timeout_s=seconds))

    def never_twice(self) -> bool:
        return not (self.place / "duplicates").exists()

    def trainer_is_gone(self) -> bool:
        return not Path(f"/proc/{self.starts()[-1]}").exists()


@pytest.fixture
def train(airflow_stack: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Start a training: ``train("training_held", steps=100)``."""

    def start(dag_id: str, **conf: Any) -> Training:
        run_id = slug(request.node.name)
        training = Training(airflow_stack, dag_id, run_id, tmp_path / "place")
        airflow_stack.api.wait_for_dag(dag_id)
        airflow_stack.api.trigger(dag_id, run_id, {"place": str(training.place), **conf})
        return training

    return start
