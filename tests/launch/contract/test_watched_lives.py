"""Whole lives on a scripted scheduler: the real gateway and the watcher, under a clock of our own.

What ends, ends once and with the right cause; what comes back is waited for; nothing is for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppState

from airflow_ett.errors import Fenced
from airflow_ett.events import AttemptId, Cause, Layer
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.limits import SETTLE_S, UNKNOWN_GRACE_S, Limits
from airflow_ett.launch.status import SchedulerStatus
from tests.launch.contract.scripted import Answer, DetailedScripted, Scripted

AWAY = ConnectionError("404 not found")
FORGOTTEN = None
HOUR_S = 3600


class Scene:
    """A job on a scripted scheduler."""

    def __init__(self, watch_job: Callable[..., Any], scheduler: Scripted, **options: Any) -> None:
        self.scheduler = scheduler
        gateway = Gateway({"scripted": lambda session, **_: scheduler})
        self.job = watch_job(gateway, "scripted", {"queue": "q"}, **options)

    def look(self, answer: Answer, after_s: float = 1) -> Any:
        """Have the scheduler say ``answer`` of the newest app from now on, and look."""
        self.scheduler.live_on(self.scheduler.submitted[-1], answer)
        return self.job.look(after_s=after_s)

    def lives(self, *answers: Answer, every_s: float = 1) -> list[Any]:
        return [self.look(answer, every_s) for answer in answers]


@pytest.fixture
def scene(watch_job: Callable[..., Any], tmp_path: Path) -> Callable[..., Scene]:
    def make(kind: type[Scripted] = Scripted, **options: Any) -> Scene:
        return Scene(watch_job, kind(tmp_path / "scripted"), **options)

    return make


@pytest.mark.parametrize("state", AppState)
def test_r12_every_state_of_torchx_ends_the_wait_or_does_not(
    scene: Callable[..., Scene], state: AppState
) -> None:
    """R12's "at the next poll" holds but for a failure that may be a requeue: that must stand."""
    at = scene()
    at.look(AppState.RUNNING)
    first = at.look(state)
    if state in (AppState.SUCCEEDED, AppState.CANCELLED):
        assert first.cause == (None if state is AppState.SUCCEEDED else Cause.USER_CANCELLED)
        return
    assert first is None
    if state is AppState.FAILED:
        assert at.look(state, SETTLE_S).cause is Cause.UNKNOWN
    elif state is AppState.UNKNOWN:
        assert at.look(state, UNKNOWN_GRACE_S).cause is Cause.VANISHED
    else:
        assert at.lives(*[state] * 24, every_s=HOUR_S) == [None] * 24


def test_r14_a_scheduler_that_fails_for_ten_seconds_costs_nothing(
    scene: Callable[..., Scene], caplog: pytest.LogCaptureFixture
) -> None:
    at = scene()
    running = AppState.RUNNING
    assert at.lives(running, *[AWAY] * 10, FORGOTTEN, running) == [None] * 13
    assert at.look(AppState.SUCCEEDED).cause is None
    assert "could not be asked" in caplog.text
    assert at.job.states() == ["RUNNING", "UNKNOWN", "RUNNING", "SUCCEEDED"]
    assert len(at.scheduler.submitted) == 1


def test_r14_one_that_fails_beyond_the_grace_ends_the_attempt_as_vanished(
    scene: Callable[..., Scene],
) -> None:
    """The report's words are 'lost' and 'scheduler_unreachable': ours for both is vanished."""
    at = scene()
    at.look(AppState.RUNNING)
    looks = at.lives(*[AWAY] * 400)
    ended = next(number for number, outcome in enumerate(looks) if outcome is not None)
    assert ended == UNKNOWN_GRACE_S
    assert looks[ended].cause is Cause.VANISHED
    assert "404 not found" in looks[ended].message
    assert at.job.ends() == [Cause.VANISHED]


@pytest.mark.parametrize("told", [True, False])
def test_r15_a_job_aged_out_ends_by_its_own_word_or_as_vanished(
    scene: Callable[..., Scene], told: bool
) -> None:
    at = scene()
    at.look(AppState.RUNNING)
    if told:
        at.job.trainer("session_ended", outcome="success")
    assert [at.look(FORGOTTEN), at.look(FORGOTTEN, UNKNOWN_GRACE_S - 1)] == [None, None]
    assert at.look(FORGOTTEN).cause == (None if told else Cause.VANISHED)
    assert at.job.ends() == [None if told else Cause.VANISHED]
    assert at.scheduler.cancelled == ([] if told else at.scheduler.submitted)


def test_a_requeue_is_no_end(scene: Callable[..., Scene]) -> None:
    at = scene()
    requeue = (AppState.FAILED, AppState.PENDING, AppState.RUNNING)
    assert at.lives(AppState.RUNNING, *requeue, every_s=SETTLE_S - 1) == [None] * 4
    assert at.lives(*requeue, every_s=SETTLE_S - 1) == [None] * 3
    assert at.look(AppState.SUCCEEDED).cause is None
    assert len(at.scheduler.submitted) == 1
    assert at.job.ends() == [None]


def test_a_failure_that_stands_is_one_and_is_relaunched(scene: Callable[..., Scene]) -> None:
    at = scene()
    at.look(AppState.RUNNING)
    at.job.bench.reply(AttemptId(1), signal=9)
    assert at.lives(*[AppState.FAILED] * 10) == [None] * 10
    assert len(at.scheduler.submitted) == 1
    at.look(AppState.FAILED)
    assert len(at.scheduler.submitted) == 2
    layers = [event.data["layer"] for event in at.job.bench.events("submitted")]
    assert layers == [Layer.FIRST, Layer.RELAUNCH]


def test_the_instant_from_which_a_failure_stands_outlives_the_process(
    scene: Callable[..., Scene],
) -> None:
    at = scene()
    assert at.lives(AppState.RUNNING, AppState.FAILED) == [None] * 2
    for _ in range(3):
        at.job.watch_again()
        assert at.look(AppState.FAILED, 3) is None
    at.job.watch_again()
    assert at.look(AppState.FAILED, 1).cause is Cause.UNKNOWN


def test_each_failure_must_stand_for_itself(scene: Callable[..., Scene]) -> None:
    at = scene()
    flips = (AppState.FAILED, AppState.PENDING) * 5
    assert at.lives(AppState.RUNNING, *flips, every_s=6) == [None] * 11
    assert at.lives(AppState.FAILED, AppState.FAILED, every_s=6) == [None, None]
    assert at.look(AppState.FAILED, 4).cause is Cause.UNKNOWN


def test_an_end_that_was_asked_for_needs_not_stand(scene: Callable[..., Scene]) -> None:
    at = scene()
    at.look(AppState.RUNNING)
    at.job.watcher.cancel(Cause.USER_CANCELLED)
    assert at.look(AppState.FAILED).cause is Cause.USER_CANCELLED


def test_a_cancel_in_the_midst_of_a_requeue_arrives(scene: Callable[..., Scene]) -> None:
    at = scene()
    assert at.lives(AppState.RUNNING, AppState.FAILED) == [None] * 2
    at.job.watcher.cancel(Cause.USER_CANCELLED)
    assert at.scheduler.cancelled == at.scheduler.submitted


def test_a_deadline_does_not_wait_for_a_failure_to_stand(scene: Callable[..., Scene]) -> None:
    at = scene()
    at.job.options["limits"] = Limits(at.job.bench.now_ns + 5 * 10**9)
    at.job.watch_again()
    assert at.lives(AppState.RUNNING, AppState.FAILED) == [None] * 2
    assert at.look(AppState.FAILED, 3).cause is Cause.UNKNOWN


def test_a_start_that_is_late_is_none_of_a_failure_that_has_to_stand(
    scene: Callable[..., Scene],
) -> None:
    at = scene(limits=Limits(start_timeout_s=3))
    assert at.lives(AppState.PENDING, AppState.FAILED, AppState.FAILED, every_s=2) == [None] * 3
    assert at.scheduler.cancelled == []


def test_a_scheduler_whose_word_is_final_is_believed_at_once(scene: Callable[..., Scene]) -> None:
    at = scene(DetailedScripted)
    assert at.look(SchedulerStatus("RUNNING", raw="RUNNING")) is None
    outcome = at.look(SchedulerStatus("FAILED", raw="OUT_OF_MEMORY"))
    assert outcome.cause is Cause.OUT_OF_MEMORY


def test_a_detailed_scheduler_says_itself_what_may_return(scene: Callable[..., Scene]) -> None:
    at = scene(DetailedScripted)
    preempted = SchedulerStatus("FAILED", raw="PREEMPTED", may_return=True)
    requeued = SchedulerStatus("PENDING", raw="REQUEUED", restart=1)
    again = SchedulerStatus("RUNNING", raw="RUNNING", restart=1)
    assert at.lives(preempted, requeued, again, every_s=5) == [None] * 3
    assert at.look(SchedulerStatus("SUCCEEDED", raw="COMPLETED", restart=1)).cause is None
    former, last = at.job.bench.events("attempt_ended")
    assert (former.attempt, former.data["cause"]) == (AttemptId(1, 0), Cause.PREEMPTED)
    assert (last.attempt, last.data["cause"]) == (AttemptId(1, 1), None)


def test_who_was_superseded_while_the_answer_took_its_time_writes_nothing(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13: an answer may take longer than another process needs to take the job over."""
    at = scene()
    at.look(AppState.RUNNING)
    old = at.job.watcher
    real = Scripted.describe

    def slowly(scheduler: Scripted, app_id: str) -> Any:
        monkeypatch.undo()
        at.job.watch_again()
        return real(scheduler, app_id)

    monkeypatch.setattr(Scripted, "describe", slowly)
    at.scheduler.live_on(at.scheduler.submitted[-1], AppState.SUCCEEDED)
    with pytest.raises(Fenced):
        old.poll()
    assert at.job.ends() == []
    assert at.job.watcher.poll().cause is None
    assert at.job.ends() == [None]
