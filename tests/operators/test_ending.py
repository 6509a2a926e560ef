"""Field report R06: a task that fails for good takes its training with it, and no other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferred,
)

from airflow_ett.errors import (
    ConfigurationError,
    EndedByUser,
    Fenced,
    JobLogError,
    LaunchError,
    TrainingFailed,
)
from airflow_ett.events import Cause, JobState
from airflow_ett.launch.ender import Ender
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.watcher import Watcher
from airflow_ett.operators.ending import will_retry

LONG = "sleep 60"
MODES = pytest.mark.parametrize("deferrable", [False, True], ids=["held", "deferred"])


def break_poll(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the watcher's second look fail: the training runs by then."""
    real, looks = Watcher.poll, [0]

    def poll(watcher: Watcher) -> Any:
        looks[0] += 1
        if looks[0] == 2:
            raise error
        return real(watcher)

    monkeypatch.setattr(Watcher, "poll", poll)


@MODES
@pytest.mark.parametrize("error", [KeyError("a bug"), ConfigurationError("cfg", "is wrong")])
def test_r06_the_last_try_cancels_a_training_that_it_leaves(
    desk: Any, monkeypatch: pytest.MonkeyPatch, deferrable: bool, error: Exception
) -> None:
    """'launcher_error' is the cause ``launch`` here."""
    break_poll(monkeypatch, error)
    with pytest.raises((type(error), TrainingFailed), match=r"a bug|is wrong"):
        desk.run(desk.task(LONG, deferrable=deferrable), desk.context())
    assert desk.app_states() == ["CANCELLED"]
    (cancel,) = desk.events("cancel_requested")
    assert cancel.data["reason"] == Cause.LAUNCH
    assert desk.causes() == [Cause.LAUNCH]
    (attempt,) = desk.events("attempt_ended")
    assert str(error) in attempt.data["evidence"]["text"]
    assert desk.job_state() is JobState.FAILED


@MODES
def test_r06_with_retries_left_the_training_is_left_for_the_next_try(
    desk: Any, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    break_poll(monkeypatch, KeyError("a bug"))
    task = desk.task(desk.until_fired if deferrable else "sleep 1", deferrable=deferrable)
    with pytest.raises((KeyError, TrainingFailed)):
        desk.run(task, desk.context(1, 1))
    assert desk.events("cancel_requested") == []
    assert desk.job_state() is None
    assert desk.run(task, desk.context(2, 1))["job"]
    assert len(desk.events("submitted")) == 1
    assert desk.events("adopted")
    assert desk.job_state() is JobState.SUCCEEDED


def test_r06_a_trigger_that_fails_outside_of_our_code_ends_the_training(desk: Any) -> None:
    task = desk.task(LONG, deferrable=True)
    with pytest.raises(TaskDeferred):
        type(task).execute.__wrapped__(task, desk.context())
    with pytest.raises(TaskDeferralError):
        task.resume_execution("__fail__", {"error": "Trigger failure"}, desk.context())
    assert desk.app_states() == ["CANCELLED"]
    assert desk.job_state() is JobState.FAILED


def test_r06_a_wrong_configuration_on_a_later_try_ends_the_training(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy refuses a retry, so no try follows although ``retries`` are left."""
    break_poll(monkeypatch, KeyError("a bug"))
    with pytest.raises(KeyError):
        desk.run(desk.task(LONG), desk.context(1, 5))
    task = desk.task(LONG, torchx_conn_id="broken")
    wrong = ConfigurationError("torchx_conn_id", "extra field cfg is not a JSON object")
    monkeypatch.setattr(task, "_hold", lambda *_, **__: (_ for _ in ()).throw(wrong))
    with pytest.raises(ConfigurationError):
        desk.run(task, desk.context(2, 5))
    assert desk.app_states() == ["CANCELLED"]
    assert desk.job_state() is JobState.FAILED


def test_r06_a_refused_relaunch_closes_the_job(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = Gateway.submit, [0]

    def submit(gateway: Gateway, *arguments: Any) -> str:
        asked[0] += 1
        if asked[0] >= 2:
            raise LaunchError("the queue is closed")
        return real(gateway, *arguments)

    monkeypatch.setattr(Gateway, "submit", submit)
    with pytest.raises(TrainingFailed, match="the queue is closed") as caught:
        desk.run(desk.task("kill -9 $$$$", max_relaunches=1), desk.context())
    assert caught.value.cause == Cause.LAUNCH
    assert desk.causes() == [Cause.INFRASTRUCTURE, Cause.LAUNCH]
    assert desk.job_state() is JobState.FAILED


def test_r06_whoever_lost_the_job_touches_nothing(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An orphaned task process of an earlier try fails by itself; a newer one has the training."""
    task, real = desk.task(LONG), Watcher.poll
    newer = desk.task(LONG, deferrable=True)

    def lose(watcher: Watcher) -> Any:
        monkeypatch.setattr(Watcher, "poll", real)
        with pytest.raises(TaskDeferred):
            type(newer).execute.__wrapped__(newer, desk.context(2, 3))
        raise ConfigurationError("cfg", "which no retry follows")

    monkeypatch.setattr(Watcher, "poll", lose)
    with pytest.raises(ConfigurationError):
        desk.run(task, desk.context(1, 3))
    monkeypatch.setattr(Watcher, "poll", lambda _: (_ for _ in ()).throw(Fenced("newer")))
    with pytest.raises(Fenced):
        desk.run(desk.task(LONG), desk.context(3, 3))
    assert desk.events("cancel_requested") == []
    assert desk.app_states() == ["RUNNING"]


def test_r06_a_training_that_cannot_be_told_to_end_stays_open_for_the_reaper(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.operators.ending.WAIT_S", 0.3)
    refuse = LaunchError("connection refused")
    break_poll(monkeypatch, KeyError("a bug"))
    with monkeypatch.context() as away:
        away.setattr(Gateway, "cancel", lambda *_: (_ for _ in ()).throw(refuse))
        with pytest.raises(KeyError):
            desk.run(desk.task(LONG), desk.context())
    assert desk.job_state() is None
    assert desk.app_states() == ["RUNNING"]


def test_a_training_that_takes_its_time_to_end_is_closed_and_waited_for(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.operators.ending.WAIT_S", 0.3)
    break_poll(monkeypatch, KeyError("a bug"))
    ready = desk.root / "ready"
    script = f"trap '' TERM; touch {ready}; sleep 60"
    task = desk.task(script, poll_interval=0.5, cfg={"grace_s": 3})
    with pytest.raises(KeyError):
        desk.run(task, desk.context())
    (attempt,) = desk.events("attempt_ended")
    assert attempt.data["evidence"]["seen"] is False
    assert desk.job_state() is JobState.FAILED


def test_a_log_that_is_away_at_the_beginning_is_waited_for(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.operators.training._LOG_PAUSE_S", 0.05)
    real, begun = Watcher.begin, [0]

    def begin(watcher: Watcher) -> Any:
        begun[0] += 1
        if begun[0] == 2:
            raise JobLogError("stale file handle")
        action = real(watcher)
        if begun[0] == 1:
            raise JobLogError("stale file handle")  # after the app was handed over
        return action

    monkeypatch.setattr(Watcher, "begin", begin)
    assert desk.run(desk.task("sleep 0.5"), desk.context())["job"]
    assert len(desk.events("submitted")) == 1
    assert [event.data["mode"] for event in desk.events("claimed")] == ["task", "again", "again"]


def test_a_log_that_stays_away_fails_the_try(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_ett.operators.training._LOG_PAUSE_S", 0.05)
    away = JobLogError("stale file handle")
    monkeypatch.setattr(Watcher, "begin", lambda _: (_ for _ in ()).throw(away))
    with pytest.raises(JobLogError):
        desk.run(desk.task(LONG, unknown_grace=0.2), desk.context(1, 2))


def test_a_live_training_outlives_the_checkpoint_that_it_began_from(
    desk: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_poll(monkeypatch, KeyError("a bug"))
    with pytest.raises(KeyError):
        desk.run(desk.task("sleep 1"), desk.context(1, 1))
    gone = str(tmp_path / "deleted")
    assert desk.run(desk.task("sleep 1", resume=gone), desk.context(2, 1))["job"]
    with pytest.raises(ConfigurationError, match="deleted"):
        desk.run(desk.task("sleep 1", resume=gone), desk.context(3, 9))


FAILING = """
from airflow_ett.trainer import Session
with Session() as ett:
    for number in ett.track(range(9), cursor=0):
        ett.step(number + 1)
        if number == 4:
            raise ValueError("sample 5 is damaged")
"""


@MODES
def test_the_same_error_at_the_same_cursor_twice_closes_the_job(
    desk: Any, deferrable: bool
) -> None:
    script = desk.root / "train.py"
    script.write_text(FAILING)
    task = desk.task(deferrable=deferrable)
    task.component, task.component_args = "train", ["--script", str(script)]
    with pytest.raises(TrainingFailed) as first:
        desk.run(task, desk.context(1, 5))
    assert (first.value.repeated, desk.job_state()) == (False, None)
    with pytest.raises(TrainingFailed) as second:
        desk.run(task, desk.context(2, 5))
    assert (second.value.repeated, second.value.cursor) == (True, 5)
    assert desk.job_state() is JobState.FAILED
    reason = task.retry_policy.evaluate(second.value, 2, 5).reason
    assert reason.startswith("the same error twice at cursor 5: ")
    assert "sample 5 is damaged" in reason


class Odd(RetryPolicy):
    """A policy that decides by the context, and one that fails."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def evaluate(
        self, exception: Any, try_number: int, max_tries: int, context: Any = None
    ) -> RetryDecision:
        if self.broken:
            raise ValueError("a bug")
        return RetryDecision.fail() if context["ti"] else RetryDecision.default()


@pytest.mark.parametrize(
    ("policy", "tries", "expected"),
    [
        (None, (1, 0), False),
        (None, (2, 2), True),
        (Odd(), (1, 9), False),
        (Odd(broken=True), (1, 9), True),
    ],
)
def test_whether_a_try_follows_is_asked_as_airflow_asks(
    desk: Any, policy: Any, tries: tuple[int, int], expected: bool
) -> None:
    assert will_retry(policy, KeyError("x"), desk.context(*tries)) is expected


def test_a_user_who_ended_the_task_wants_no_other_try(desk: Any) -> None:
    ended = EndedByUser("Ended by a user.", cause=Cause.USER_CANCELLED)
    assert will_retry(None, ended, desk.context(1, 9)) is False


@pytest.mark.parametrize(
    "kind", [AirflowFailException, AirflowSensorTimeout, AirflowTaskTerminated]
)
def test_what_airflow_never_retries_takes_the_training_with_it(
    desk: Any, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    task = desk.task(LONG, retry_policy=None)
    monkeypatch.setattr(task, "_watch", lambda *_: (_ for _ in ()).throw(kind("budget is spent")))
    with pytest.raises(kind):
        desk.run(task, desk.context(1, 9))
    assert desk.app_states() == ["CANCELLED"]
    assert desk.job_state() is JobState.FAILED


def test_without_a_policy_a_training_cancelled_at_its_scheduler_goes_on_in_the_next_try(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's own rule tries again; only a user of Airflow has ended the *task*."""
    real = Watcher.poll

    def poll(watcher: Watcher) -> Any:
        desk.scheduler.cancel(str(watcher.handle).rpartition("/")[2])
        return real(watcher)

    monkeypatch.setattr(Watcher, "poll", poll)
    with pytest.raises(TrainingFailed) as caught:
        desk.run(desk.task(LONG, retry_policy=None), desk.context(1, 1))
    assert caught.value.cause == Cause.USER_CANCELLED
    assert desk.job_state() is None
    monkeypatch.setattr(Watcher, "poll", real)
    assert desk.run(desk.task("exit 0", retry_policy=None), desk.context(2, 1))["job"]
    assert [event.data["layer"] for event in desk.events("submitted")] == ["first", "airflow"]


def test_the_alarm_of_a_task_that_gives_up_closes_its_job_at_once(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's ``execution_timeout`` rings once, here while the training is waited for."""
    rung: list[float] = []
    real = Ender.give_up

    def give_up(ender: Ender, cause: Cause, text: str, wait_s: float) -> str:
        def ring(_: float) -> None:
            raise AirflowTaskTimeout("the alarm")

        rung.append(wait_s)
        return real(ender, cause, text, wait_s, ring)

    monkeypatch.setattr(Ender, "give_up", give_up)
    break_poll(monkeypatch, KeyError("a bug"))
    script = "trap '' TERM; while :; do sleep 0.1; done"
    with pytest.raises(KeyError):
        desk.run(desk.task(script, cfg={"grace_s": 3}, poll_interval=1), desk.context())
    assert rung == [10.0, 0.0]
    assert len(desk.events("cancel_requested")) == 1
    assert desk.job_state() is JobState.FAILED
