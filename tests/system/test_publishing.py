"""Publishing through a real Airflow: after a training, beside one, and after a kill -9."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.demo.rest import wait_until
from airflow_ett.events import Event, JobKey, Kind, RunDir, read_log
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.publish.registries.folder import FolderRegistry

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.torch,
    pytest.mark.timeout(700),
]

_PATIENCE_S = 300.0


@dataclass
class Run:
    """A run of one of the DAGs in ``dags/publishing.py``."""

    stack: Any
    dag_id: str
    run_id: str
    place: Path

    def end(self) -> str:
        return str(self.stack.api.wait_for_run(self.dag_id, self.run_id, timeout_s=_PATIENCE_S))

    def events(self) -> list[Event]:
        """Return all that the training's log says, in order of time."""
        key = JobKey("default", self.dag_id, self.run_id, "train")
        run_dir = RunDir(self.stack.home / "ett" / "runs" / key.path)
        events = [event for path in run_dir.logs() for event in read_log(path).events]
        return sorted(events, key=lambda event: event.time_ns)

    def told(self, kind: str) -> list[Event]:
        return [event for event in self.events() if event.kind == kind]

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model, each of which is whole."""
        registry = FolderRegistry(self.place / "registry", name)
        found = [path.name for path in registry.folder.iterdir() if path.is_dir()]
        visible = sorted(version for version in found if not version.startswith("."))
        assert all(registry.find(version) for version in visible)
        return visible

    def manifest(self, name: str, version: str) -> dict[str, Any]:
        path = self.place / "registry" / name / version / "manifest.json"
        read: dict[str, Any] = json.loads(path.read_bytes())
        return read


def start(stack: Any, dag_id: str, run_id: str, place: Path, **conf: str) -> Run:
    stack.api.wait_for_dag(dag_id)
    stack.api.trigger(dag_id, run_id, {"place": str(place), **conf})
    return Run(stack, dag_id, run_id, place)


@pytest.fixture(scope="module")
def trained(airflow_stack: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A training whose model was published."""
    airflow_stack.api.wait_for_dag("publishing_consumer")
    run = start(airflow_stack, "publishing", "first", tmp_path_factory.mktemp("first"))
    assert run.end() == "success", run.stack.api.log("publishing", "first", "publish", 1)
    return run


def test_the_trainings_resources_are_released_before_its_model_is_published(trained: Run) -> None:
    (submitted,) = trained.told(Kind.SUBMITTED)
    apps = LocalDetached("ett", trained.stack.home / "ett" / "local")
    app = apps.detail(submitted.data["app"])
    assert app is not None
    assert app.ended_ns is not None
    (published,) = trained.told(Kind.PUBLISHED)
    assert app.ended_ns <= published.data["begin"] < published.data["end"]


def test_the_snapshot_was_tried_and_says_where_it_comes_from(trained: Run) -> None:
    output = trained.stack.api.xcom("publishing", "first", "publish")
    assert trained.versions("tiny") == [output["version"]]
    manifest = trained.manifest("tiny", output["version"])
    assert manifest["transforms"] == ["bfloat16"]
    assert manifest["check"]
    (committed,) = trained.told(Kind.CHECKPOINT_COMMITTED)
    assert manifest["source"]["checkpoint"] == committed.data["checkpoint"]
    assert manifest["training"]["job"] == committed.job
    assert manifest["training"]["published_by"]["run_id"] == "first"
    latest = trained.place / "registry" / "tiny" / "latest"
    assert latest.read_text().strip() == output["version"]


def test_the_models_asset_starts_the_dag_that_follows_it(trained: Run) -> None:
    api = trained.stack.api
    output = api.xcom("publishing", "first", "publish")

    def consumed() -> Any:
        runs = api.get("/dags/publishing_consumer/dagRuns")["dag_runs"]
        return [run["dag_run_id"] for run in runs if run["state"] == "success"]

    (run_id, *_) = wait_until(consumed, "a run of the consumer succeeds", _PATIENCE_S)
    (extra, *_) = api.xcom("publishing_consumer", run_id, "follow")
    told = {name: output[name] for name in ("version", "uri", "digest")}
    assert told.items() <= extra.items()
    assert extra["cursor"] == 10


def test_a_task_that_is_killed_is_tried_again_and_makes_one_version(
    trained: Run, tmp_path: Path
) -> None:
    (committed,) = trained.told(Kind.CHECKPOINT_COMMITTED)
    run = start(
        trained.stack,
        "publishing_again",
        "killed",
        tmp_path,
        checkpoint=str(committed.data["checkpoint"]),
    )
    publisher = wait_until(lambda: _publisher_of("again"), "the publisher runs", _PATIENCE_S, 0.05)
    os.kill(_parent(publisher), signal.SIGKILL)
    assert run.end() == "success"
    tries = run.stack.api.tries("publishing_again", "killed", "publish")
    assert [each["state"] for each in tries] == ["failed", "success"]
    output = run.stack.api.xcom("publishing_again", "killed", "publish")
    assert run.versions("again") == [output["version"]]


def test_a_running_trainings_checkpoints_are_published_without_touching_it(
    airflow_stack: Any, tmp_path: Path
) -> None:
    run = start(airflow_stack, "publishing_beside", "beside", tmp_path)
    folder = tmp_path / "registry" / "beside"

    def visible() -> bool:
        return any(folder.glob("[0-9]*/manifest.json"))

    wait_until(visible, "a checkpoint is published", _PATIENCE_S)
    (tmp_path / "end").touch()
    assert run.end() == "success", airflow_stack.api.log(run.dag_id, run.run_id, "publish", 1)
    versions = run.versions("beside")
    assert len(versions) >= 2
    (ended,) = run.told(Kind.JOB_ENDED)
    published = run.told(Kind.PUBLISHED)
    assert published[0].data["end"] < ended.time_ns
    last = run.told(Kind.CHECKPOINT_COMMITTED)[-1]
    assert published[-1].data["checkpoint"] == last.data["checkpoint"]
    output = airflow_stack.api.xcom(run.dag_id, run.run_id, "publish")
    assert (folder / "latest").read_text().strip() == output["version"]
    assert run.manifest("beside", output["version"])["source"]["cursor"] == last.data["cursor"]
    assert len(run.told(Kind.SUBMITTED)) == 1
    assert run.told(Kind.CANCEL_REQUESTED) == []


def _publisher_of(name: str) -> int | None:
    """Return the process that publishes a model of this name."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "airflow_ett.publish" in words and f"--name={name}" in words:
            return int(path.parent.name)
    return None


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
