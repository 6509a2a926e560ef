"""How a task's process ends that Airflow stops, and what becomes of its training."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    AirflowRuntimeError,
    AirflowSkipException,
    ErrorType,
)
from airflow.sdk.execution_time.comms import ErrorResponse

import airflow_ett.operators.stopping as stopping
from airflow_ett.errors import EndedByUser, Fenced, JobLogError, LaunchError, TrainingFailed
from airflow_ett.events import JobState
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.watcher import Watcher

LONG = "sleep 60"


@pytest.mark.parametrize(
    "error",
    [
        AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR)),
        EOFError("Request socket closed before length"),
        BrokenPipeError("the supervisor is gone"),
    ],
)
def test_r11_an_eviction_while_airflow_does_not_answer_costs_no_training(
    desk: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    asked: list[Any] = []

    def away(key: Any) -> str:
        asked.append(key)
        raise error

    monkeypatch.setattr(stopping, "airflow_state", away)
    task = desk.task(LONG)
    task.on_kill()
    with pytest.raises(AirflowRescheduleException):
        desk.run(task, desk.context())
    assert len(asked) == 2
    desk.until(lambda: desk.app_states() == ["RUNNING"])
    assert desk.events("cancel_requested") == []


def test_airflow_is_asked_once_more_what_a_kill_means(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))]

    def hiccup(key: Any) -> str:
        if answers:
            raise answers.pop()
        return "failed"

    monkeypatch.setattr(stopping, "airflow_state", hiccup)
    task = desk.task(LONG)
    task.on_kill()
    with pytest.raises(EndedByUser):
        desk.run(task, desk.context(1, 3))
    assert desk.app_states() == ["CANCELLED"]


def test_r05_a_log_that_is_away_when_a_user_ends_the_task_is_told_again(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, real = [JobLogError("stale file handle")], Watcher.cancel

    def cancel(watcher: Watcher, *arguments: Any) -> None:
        if away:
            raise away.pop()
        real(watcher, *arguments)

    monkeypatch.setattr(Watcher, "cancel", cancel)
    desk.state = "failed"
    task = desk.task(LONG)
    task.on_kill()
    with pytest.raises(EndedByUser):
        desk.run(task, desk.context(1, 3))
    assert desk.app_states() == ["CANCELLED"]
    assert desk.job_state() is JobState.CANCELLED


def test_who_has_lost_the_job_when_a_user_ends_the_task_touches_nothing(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced = Fenced("a newer owner")
    monkeypatch.setattr(Watcher, "cancel", lambda *_: (_ for _ in ()).throw(fenced))
    desk.state = "failed"
    task = desk.task(LONG)
    task.on_kill()
    with pytest.raises(Fenced):
        desk.run(task, desk.context())
    desk.until(lambda: desk.app_states() == ["RUNNING"])


@pytest.mark.parametrize("deferrable", [False, True])
def test_r11_an_eviction_costs_no_try_and_no_training(desk: Any, deferrable: bool) -> None:
    task = desk.task("sleep 1", deferrable=deferrable)
    task.on_kill()
    with pytest.raises(AirflowRescheduleException):
        desk.run(task, desk.context())
    assert desk.events("cancel_requested") == []
    again = desk.context(task_reschedule_count=1)
    assert desk.run(desk.task("echo other", deferrable=deferrable), again)["job"]
    assert len(desk.events("submitted")) == 1
    assert desk.job_state() is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("state", "error", "ended"),
    [
        ("failed", TrainingFailed, JobState.CANCELLED),
        ("success", TrainingFailed, JobState.CANCELLED),
        ("restarting", AirflowSkipException, None),
    ],
)
def test_r05_a_scheduler_that_is_away_is_told_again(
    desk: Any,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    error: type[Exception],
    ended: JobState | None,
) -> None:
    real, asked = Gateway.cancel, [0]

    def cancel(gateway: Gateway, handle: str) -> None:
        asked[0] += 1
        if asked[0] == 1:
            raise LaunchError("connection refused")
        real(gateway, handle)

    monkeypatch.setattr(Gateway, "cancel", cancel)
    desk.state = state
    task = desk.task(LONG)
    task.on_kill()
    with pytest.raises(error):
        desk.run(task, desk.context(1, 3))
    assert desk.job_state() is ended
    assert len(desk.events("cancel_requested")) == 1
    if ended is None:
        again = desk.task("exit 0", retry_policy=None)
        assert desk.run(again, desk.context(2, 4))["job"]
    assert "RUNNING" not in desk.app_states()


def test_an_evicted_try_keeps_its_deadline(desk: Any) -> None:
    task = desk.task(LONG, execution_timeout=timedelta(seconds=60))
    first = task._hold(desk.context()).limits["deadline_ns"]
    task.on_kill()
    with pytest.raises(AirflowRescheduleException):
        desk.run(task, desk.context())
    later = desk.context(task_reschedule_count=1)
    again = task._hold(later, again=True).limits["deadline_ns"]
    (claim,) = desk.events("claimed")
    assert again == claim.time_ns + int(58e9)
    assert first < again < first + int(30e9)
