"""A publishing task whose publisher is an app: real ones, of ``local_detached``."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException, TaskDeferred

import airflow_ett.operators.stopping as stopping
import airflow_ett.triggers.publishing as triggers
from airflow_ett.checkpoints import Checkpoint, commit
from airflow_ett.errors import EndedByUser, PublishError
from airflow_ett.events import AttemptId
from airflow_ett.launch import publishing
from airflow_ett.launch.schedulers.appdir import AppDir
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.launch.schedulers.processes import kill_all
from airflow_ett.triggers.publishing import AppTrigger
from tests.operators.publishing import context, execute, resume, task

SLOW = """
import time
from pathlib import Path

Path({pid!r}).touch()
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalDetached]:
    """The scheduler; what is left of its apps is ended afterwards."""
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("AIRFLOW__ETT__LOCAL_STATE_DIR", str(tmp_path / "apps"))
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    monkeypatch.setattr("airflow_ett.triggers.training.SOONEST_S", 0.0)
    scheduler = LocalDetached("ett", tmp_path / "apps")
    yield scheduler
    for folder in (tmp_path / "apps").glob("*"):
        scheduler.cancel(folder.name)
        kill_all(AppDir(folder).processes, timeout_s=5)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A committed checkpoint, of which version v1 is in the registry: nothing needs PyTorch."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "weights").write_text("weights")
    saved = commit(folder, job="j", attempt=AttemptId(1), epoch=1, cursor=7)
    version = tmp_path / "registry" / "m" / "v1"
    version.mkdir(parents=True)
    (version / "model.safetensors").write_text("weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    source = {"checkpoint": saved.uri, "digest": saved.digest, "cursor": 7, "saved_ns": 1}
    manifest = {
        "v": 2,
        "name": "m",
        "version": "v1",
        "source": {**source, "job": "j"},
        "factory": "pkg.m:build",
        "transforms": [],
        "files": {"model.safetensors": {"sha256": digest, "bytes": 7}},
    }
    (version / "manifest.json").write_text(json.dumps(manifest))
    return saved


def asked(tmp_path: Path, checkpoint: Checkpoint, **more: Any) -> Any:
    return task(
        checkpoint=checkpoint.uri,
        registry=str(tmp_path / "registry"),
        version="v1",
        scheduler="local_detached",
        poll_interval=0.1,
        **more,
    )


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make publishers that never end; return the file that says that one runs."""
    began = tmp_path / "began"
    package = tmp_path / "modules"
    package.mkdir()
    (package / "slow_publisher.py").write_text(SLOW.format(pid=str(began)))
    monkeypatch.setenv("PYTHONPATH", str(package))
    monkeypatch.setattr(publishing, "_MODULE", "slow_publisher")
    return began


def fire(deferred: TaskDeferred) -> dict[str, Any]:
    """Run the trigger, rebuilt from what is stored of it; return its event."""
    _, kwargs = deferred.trigger.serialize()

    async def first() -> dict[str, Any]:
        async for event in AppTrigger(**json.loads(json.dumps(kwargs))).run():
            payload: dict[str, Any] = event.payload
            return payload
        raise AssertionError("no event")

    return asyncio.run(asyncio.wait_for(first(), 60))


def test_a_run_root_that_is_away_for_a_moment_is_asked_again(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, away = publishing.PublishApp.result, [OSError("Stale file handle")]

    def result(app: publishing.PublishApp) -> Any:
        if away:
            raise away.pop()
        return answer(app)

    monkeypatch.setattr(publishing.PublishApp, "result", result)
    assert execute(asked(tmp_path, checkpoint, deferrable=False))["version"] == "v1"
    assert away == []


@pytest.mark.parametrize("deferrable", [False, True])
def test_it_publishes_and_leaves_nothing_behind(
    tmp_path: Path, checkpoint: Checkpoint, deferrable: bool
) -> None:
    operator = asked(tmp_path, checkpoint, deferrable=deferrable)
    if deferrable:
        with pytest.raises(TaskDeferred) as deferred:
            execute(operator)
        output = resume(operator, deferred.value, fire(deferred.value))
    else:
        output = execute(operator)
    assert output["version"] == "v1"
    assert (tmp_path / "registry" / "m" / "latest").read_text().strip() == "v1"
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []


def test_what_the_publisher_says_is_the_tasks_error(tmp_path: Path, checkpoint: Checkpoint) -> None:
    (checkpoint.path / "weights").write_text("flipped")  # type: ignore[union-attr]
    shutil.rmtree(tmp_path / "registry" / "m")
    with pytest.raises(TaskDeferred) as deferred:
        execute(asked(tmp_path, checkpoint))
    operator = asked(tmp_path, checkpoint)
    with pytest.raises(PublishError, match="weights is damaged"):
        resume(operator, deferred.value, fire(deferred.value))


@pytest.mark.parametrize(
    ("state", "raised", "ended"),
    [
        ("failed", EndedByUser, True),
        ("running", AirflowRescheduleException, False),
    ],
)
def test_a_kill_ends_the_app_if_a_user_wanted_it(
    tmp_path: Path,
    checkpoint: Checkpoint,
    slow: Path,
    apps: LocalDetached,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    raised: type[Exception],
    ended: bool,
) -> None:
    monkeypatch.setattr(stopping, "airflow_state", lambda key: state)
    operator = asked(tmp_path, checkpoint, deferrable=False)
    killer = threading.Thread(target=lambda: (until(slow.exists), operator.on_kill()))
    killer.start()
    with pytest.raises(raised):
        execute(operator)
    killer.join()
    (app,) = apps.list()
    if ended:
        until(lambda: str(apps.detail(app.app_id).state) == "CANCELLED")  # type: ignore[union-attr]
    else:
        assert not AppDir(tmp_path / "apps" / app.app_id).cancel.exists()


@pytest.mark.parametrize(("state", "ended"), [("failed", True), ("deferred", False)])
def test_a_trigger_that_is_stopped_ends_the_app_if_a_user_wanted_it(
    tmp_path: Path,
    checkpoint: Checkpoint,
    slow: Path,
    apps: LocalDetached,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    ended: bool,
) -> None:
    monkeypatch.setattr(triggers, "airflow_state", lambda key: state)
    with pytest.raises(TaskDeferred) as deferred:
        execute(asked(tmp_path, checkpoint))
    until(slow.exists)
    asyncio.run(deferred.value.trigger.on_kill())
    (app,) = apps.list()
    if ended:
        until(lambda: str(apps.detail(app.app_id).state) == "CANCELLED")  # type: ignore[union-attr]
    else:
        assert not AppDir(tmp_path / "apps" / app.app_id).cancel.exists()


def test_an_app_is_ended_at_the_tasks_deadline(
    tmp_path: Path, checkpoint: Checkpoint, slow: Path, apps: LocalDetached
) -> None:
    operator = asked(tmp_path, checkpoint)
    with pytest.raises(TaskDeferred) as deferred:
        execute(operator)
    until(slow.exists)
    deferred.value.trigger.deadline_ns = time.time_ns()
    event = fire(deferred.value)
    assert event["late"]
    with pytest.raises(PublishError, match="execution_timeout"):
        getattr(operator, deferred.value.method_name)(context(), event)
    (app,) = apps.list()
    until(lambda: str(apps.detail(app.app_id).state) == "CANCELLED")  # type: ignore[union-attr]


def until(true: Any, seconds: float = 15) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)
