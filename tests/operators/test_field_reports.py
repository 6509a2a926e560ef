"""Field reports seen from a task: what dies, is lost or comes twice, and what it reads then."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import TaskDeferred

from airflow_ett.errors import TrainingFailed
from airflow_ett.events import Cause, JobKey, JobState
from airflow_ett.launch.aftermath import Outcome

DYING = """
import os, signal, sys
from types import SimpleNamespace
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.ledger import Ledger
from airflow_ett.operators import TorchXTrainingOperator

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

point, component, line = sys.argv[1:]
if point == "before submit":
    Gateway.submit = die
elif point == "before the handle is noted":
    Ledger.handed_over = die
else:
    TorchXTrainingOperator.defer = die
task = TorchXTrainingOperator(
    task_id="train", component=component, component_args=["--", line], cfg={"grace_s": 2}
)
ti = SimpleNamespace(
    dag_id="dag", run_id="run", task_id="train", map_index=-1, try_number=1, max_tries=1
)
TorchXTrainingOperator.execute.__wrapped__(task, {"ti": ti})
"""


@pytest.mark.parametrize(
    ("point", "adopted"),
    [("before submit", 0), ("before the handle is noted", 0), ("before it is deferred", 1)],
)
def test_r01_r02_a_task_process_killed_around_submit_makes_one_job(
    desk: Any, point: str, adopted: int
) -> None:
    """A real SIGKILL, and the next try in deferred mode."""
    line = f"echo x >> {desk.root}/starts; {desk.until_fired}"
    task = desk.task(line, deferrable=True)
    command = [sys.executable, "-c", DYING, point, task.component, line]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    running = 0 if point == "before submit" else 1
    assert len(desk.app_states()) == running
    output = desk.run(task, desk.context(2, 1))
    assert len(desk.app_states()) == 1
    assert (desk.root / "starts").read_text() == "x\n"
    (submitted,) = desk.events("submitted")
    assert output["handle"] == submitted.data["handle"]
    assert len(desk.events("adopted")) == adopted + 1  # the last one by the trigger
    assert desk.job_state() is JobState.SUCCEEDED


def test_r08_both_roles_of_an_app_are_ended_even_if_the_first_resists(desk: Any) -> None:
    """A cluster and its job are two roles of one app here, and one scheduler ends both.

    SIGTERM goes to all roles in their order; what is left after the grace is killed. How each one
    ended is in the scheduler's status.
    """
    first = f"trap '' TERM; touch {desk.root}/first; sleep 60"
    second = f"touch {desk.root}/second; exec sleep 60"
    options = {"cfg": {"grace_s": 1}, "max_relaunches": 0}
    task = desk.task(first, second, deferrable=True, **options)
    with pytest.raises(TaskDeferred):
        type(task).execute.__wrapped__(task, desk.context(1, 1))
    desk.until(lambda: (desk.root / "first").exists() and (desk.root / "second").exists())
    desk.state = "failed"
    held = desk.task(first, second, **options)
    held.on_kill()
    with pytest.raises(TrainingFailed, match="Ended by a user"):
        desk.run(held, desk.context(2, 1))
    (folder,) = (desk.root / "apps").iterdir()
    after = desk.scheduler.detail(folder.name)
    assert after.state == "CANCELLED"
    assert [replica.signal for replica in after.replicas] == [signal.SIGKILL, signal.SIGTERM]
    assert len(desk.events("cancel_requested")) == 1


def test_r18_a_retry_needs_nothing_of_xcom(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle is in the job's log; a clear, with or without keeping state, restarts the job."""

    def wiped(*_: Any, **__: Any) -> None:
        raise AssertionError("an XCom was read")

    for name in ("get_one", "get_all", "get_value"):
        monkeypatch.setattr(BaseXCom, name, wiped, raising=False)
    task = desk.task(desk.until_fired, deferrable=True)
    with pytest.raises(TaskDeferred):
        type(task).execute.__wrapped__(task, desk.context(1, 1))
    (submitted,) = desk.events("submitted")
    assert desk.run(task, desk.context(2, 1))["handle"] == submitted.data["handle"]


class Word(StrEnum):
    """An enum that a DAG may use for one of its values."""

    AUTO = "auto"


def test_r19_everything_that_reaches_a_trigger_is_plain(desk: Any, tmp_path: Path) -> None:
    task = desk.task(
        desk.until_fired,
        deferrable=True,
        checkpoint_uri=tmp_path / "checkpoints",
        resume=Word.AUTO,
        env={"NUMBER": 3, "PLACE": tmp_path},
    )
    with pytest.raises(TaskDeferred) as deferred:
        type(task).execute.__wrapped__(task, desk.context())
    _, kwargs = deferred.value.trigger.serialize()
    assert json.loads(json.dumps(kwargs)) == kwargs
    assert not deferred.value.kwargs, "airflow dags test loses them"
    assert desk.fire(deferred.value)["cause"] is None


def test_r19_an_outcome_with_every_field_survives_json(desk: Any) -> None:
    full = Outcome("j", Cause.OUT_OF_MEMORY, "text", "local_detached://ett/a", 7, "/c/7")
    full = replace(full, **{f.name: True for f in fields(Outcome) if f.type in ("bool", bool)})
    assert all(getattr(full, field.name) is not None for field in fields(Outcome))
    for outcome in (full, Outcome("j", None, "", None, None, None)):
        payload = json.loads(json.dumps(outcome.as_dict()))
        assert payload == outcome.as_dict()
        cause = Cause(payload["cause"]) if payload["cause"] else None
        assert Outcome(**{**payload, "cause": cause}) == outcome


@pytest.mark.parametrize("deferrable", [False, True], ids=["held", "deferred"])
def test_r21_the_error_says_what_to_know(desk: Any, deferrable: bool) -> None:
    """'oom', 'user_error', 'infra': ``out_of_memory``, ``application``, ``infrastructure``."""
    task = desk.task("echo step 7; echo bad batch >&2; exit 3", deferrable=deferrable)
    with pytest.raises(TrainingFailed) as caught:
        desk.run(task, desk.context())
    text = str(caught.value)
    (submitted,) = desk.events("submitted")
    assert submitted.data["handle"] in text
    for fact in ("application", "replica 0", "code 3", "step 7", "bad batch"):
        assert fact in text, text
    assert caught.value.cause == Cause.APPLICATION
    (attempt,) = desk.events("attempt_ended")
    assert attempt.data["evidence"]["exit_code"] == 3


@pytest.mark.parametrize(
    ("line", "cause"),
    [("exit 137", Cause.INFRASTRUCTURE), ("exit 143", Cause.PREEMPTED), ("exit 1", "application")],
)
def test_r21_an_empty_log_still_has_a_cause(desk: Any, line: str, cause: str) -> None:
    with pytest.raises(TrainingFailed, match=str(cause)) as caught:
        desk.run(desk.task(line, max_relaunches=0), desk.context())
    assert caught.value.cause == cause


NAMES = [
    "Ünïcode. Name with SPACES " + "x" * 74 + tail + "y" * 100 for tail in ("a", "b")
]  # they differ in character 100


@pytest.mark.parametrize("name", NAMES)
def test_r37_long_and_odd_names_run(desk: Any, name: str) -> None:
    assert len(name) > 200 - 1
    assert NAMES[0][:99] == NAMES[1][:99]
    desk.key = JobKey("default", name, name, name)
    handle = desk.run(desk.task("exit 0"), desk.context())["handle"]
    app = handle.rpartition("/")[2]
    assert len(app) <= 63
    assert app == app.lower()
    assert app.isascii()


def test_s02_the_name_differs_by_try_after_a_failure(desk: Any) -> None:
    """One operator object runs two tries; within a try a submit bears one name (see R02)."""
    task = desk.task("exit 1")
    for number in (1, 2):
        with pytest.raises(TrainingFailed):
            desk.run(task, desk.context(number, 2))
    first, second = (event.data["app"] for event in desk.events("submitted"))
    assert first != second
    assert len(desk.app_states()) == 2


def test_s07_resuming_twice_gives_the_outputs_of_an_uninterrupted_run(desk: Any) -> None:
    """A task process dies after its trigger has fired; Airflow resumes it once more."""
    task, context = desk.task(desk.until_fired, deferrable=True), desk.context(1, 1)
    with pytest.raises(TaskDeferred) as deferred:
        type(task).execute.__wrapped__(task, context)
    payload = desk.fire(deferred.value)
    once = desk.resume(task, context, deferred.value, payload)
    assert desk.resume(task, context, deferred.value, payload) == once
    retried = desk.run(desk.task("exit 0", deferrable=True), desk.context(2, 1))
    assert retried == once
    assert len(desk.events("submitted")) == 1
    assert len(desk.events("job_ended")) == 1
