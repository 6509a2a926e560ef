"""A job that nobody watches is brought to its end: cancelled once, closed once, never submitted."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.errors import Fenced, LaunchError
from airflow_ett.events import AttemptId, Cause, JobState
from airflow_ett.launch.ender import Ender
from airflow_ett.launch.request import Request
from airflow_ett.launch.status import SchedulerStatus

PREEMPTED = SchedulerStatus("FAILED", raw="PREEMPTED")
TEXT = "Its Airflow task is failed."
USER = Cause.USER_CANCELLED


def ender(bench: Any) -> Ender:
    job = bench.open()
    claim = job.log.claim(try_number=1, max_tries=2, mode="task")
    request = Request("train", [], "fake", max_relaunches=0)
    return Ender(job, claim, request, bench.gateway, now_ns=lambda: bench.now_ns)


def reasons(bench: Any) -> list[str]:
    return [event.data["reason"] for event in bench.events("cancel_requested")]


def causes(bench: Any) -> list[str | None]:
    return [event.data["cause"] for event in bench.events("attempt_ended")]


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (USER, JobState.CANCELLED),
        (Cause.INFRASTRUCTURE, JobState.FAILED),
        (Cause.UNKNOWN, JobState.FAILED),
    ],
)
def test_a_live_training_is_cancelled_once_and_the_job_closed(
    bench: Any, reason: Cause, state: JobState
) -> None:
    bench.watch()

    def sleep(seconds: float) -> None:
        bench.tick(seconds)
        bench.ends("CANCELLED")

    done = ender(bench).end(reason, TEXT, sleep)
    assert done == f"closed as {state}, cause {reason}"
    assert reasons(bench) == [reason]
    assert bench.gateway.cancelled == [bench.app()]
    assert causes(bench) == [reason]
    assert bench.events("attempt_ended")[0].data["evidence"]["text"] == TEXT
    assert bench.job_state() is state
    assert len(bench.gateway.submitted) == 1


def test_a_training_that_takes_its_time_is_left_open_for_the_next_look(bench: Any) -> None:
    bench.watch()
    assert "has not yet" in ender(bench).end(USER, TEXT, bench.tick)
    assert bench.job_state() is None
    bench.ends("CANCELLED")
    assert ender(bench).end(USER, TEXT, bench.tick) == "closed as cancelled, cause user_cancelled"
    assert reasons(bench) == [USER]


@pytest.mark.parametrize(
    ("app", "cause", "state"),
    [
        ("SUCCEEDED", None, JobState.SUCCEEDED),
        ("FAILED", Cause.APPLICATION, JobState.FAILED),
        (PREEMPTED, Cause.PREEMPTED, JobState.FAILED),
    ],
)
def test_what_ended_by_itself_keeps_its_cause(
    bench: Any, app: Any, cause: Cause | None, state: JobState
) -> None:
    bench.watch()
    if cause is Cause.APPLICATION:
        bench.reply(AttemptId(1), exit_code=1)
    bench.ends(app)
    ender(bench).end(USER, TEXT, bench.tick)
    assert reasons(bench) == []
    assert bench.gateway.cancelled == []
    assert causes(bench) == [cause]
    assert bench.job_state() is state
    assert len(bench.gateway.submitted) == 1


def test_only_who_knows_the_trainers_secrets_quotes_its_output(bench: Any) -> None:
    bench.watch()
    bench.ends("FAILED")
    ender(bench).end(USER, TEXT, bench.tick)
    following = bench.watch()
    bench.ends("FAILED")
    following.poll()
    unquoted, quoted = (
        bench.events("attempt_ended", generation)[0].data["evidence"] for generation in (1, 2)
    )
    assert "lines" not in unquoted
    assert quoted["lines"] == ["step 1", "CUDA error: launch failure"]
    assert unquoted["log"] == f"/logs/{bench.app(0)}/trainer-0"


def test_a_cancel_that_was_asked_for_before_keeps_its_reason(bench: Any) -> None:
    bench.watch().cancel(Cause.TIMEOUT)

    def sleep(seconds: float) -> None:
        bench.tick(seconds)
        bench.ends("CANCELLED")

    ender(bench).end(USER, TEXT, sleep)
    assert reasons(bench) == [Cause.TIMEOUT]
    assert bench.job_state() is JobState.FAILED


def test_an_app_that_its_scheduler_does_not_know_is_given_up(bench: Any) -> None:
    bench.watch()
    bench.ends(None)
    assert ender(bench).end(USER, TEXT, bench.tick) == "closed as cancelled, cause user_cancelled"


def test_a_submission_that_never_reached_the_scheduler_is_not_made_now(bench: Any) -> None:
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    bench.gateway.states.clear()
    assert ender(bench).end(USER, TEXT, bench.tick) == "closed as cancelled, cause user_cancelled"
    assert len(bench.gateway.submitted) == 1
    assert bench.gateway.cancelled == []


def test_a_submission_whose_handle_was_lost_is_found_and_cancelled(bench: Any) -> None:
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()

    def sleep(seconds: float) -> None:
        bench.tick(seconds)
        bench.ends("CANCELLED")

    ender(bench).end(USER, TEXT, sleep)
    assert bench.gateway.cancelled == [bench.app()]
    assert bench.job_state() is JobState.CANCELLED


def test_a_job_that_waits_for_its_relaunch_is_not_relaunched(bench: Any) -> None:
    watcher = bench.watch()
    for _ in range(2):
        bench.ends(PREEMPTED)
        watcher.poll()
    submitted = len(bench.gateway.submitted)
    bench.tick(60)
    assert ender(bench).end(USER, TEXT, bench.tick) == "closed as failed, cause preempted"
    assert len(bench.gateway.submitted) == submitted
    assert bench.job_state() is JobState.FAILED


def test_a_job_whose_task_was_cleared_stays_open(bench: Any) -> None:
    bench.watch()

    def sleep(seconds: float) -> None:
        bench.tick(seconds)
        bench.ends("CANCELLED")

    done = ender(bench).end(Cause.USER_RESTART, TEXT, sleep)
    assert done == "told to end; the next try goes on with it"
    assert causes(bench) == [Cause.USER_RESTART]
    assert bench.job_state() is None


def test_a_task_that_was_cleared_and_then_marked_was_ended_by_the_mark(bench: Any) -> None:
    bench.watch().user_restart()
    bench.ends("CANCELLED")
    assert ender(bench).end(USER, TEXT, bench.tick) == "closed as cancelled, cause user_cancelled"
    assert causes(bench) == [Cause.USER_RESTART]
    assert reasons(bench) == [Cause.USER_RESTART]
    assert bench.job_state() is JobState.CANCELLED


def test_a_newer_owner_is_not_touched(bench: Any) -> None:
    bench.watch()
    old = ender(bench)
    bench.watch()
    with pytest.raises(Fenced):
        old.end(USER, TEXT, bench.tick)
    assert bench.gateway.cancelled == []
    assert bench.job_state() is None


def test_a_scheduler_that_cannot_be_asked_closes_nothing(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.watch()

    def refuse(handle: str) -> None:
        raise LaunchError("away")

    monkeypatch.setattr(bench.gateway, "cancel", refuse)
    with pytest.raises(LaunchError):
        ender(bench).end(USER, TEXT, bench.tick)
    assert bench.job_state() is None


def test_r06_giving_up_cancels_once_and_closes(bench: Any) -> None:
    bench.watch()

    def sleep(seconds: float) -> None:
        bench.tick(seconds)
        bench.ends("CANCELLED")

    assert ender(bench).give_up(Cause.LAUNCH, TEXT, 10, sleep) == "closed as failed, cause launch"
    assert (reasons(bench), causes(bench)) == ([Cause.LAUNCH], [Cause.LAUNCH])
    assert bench.gateway.cancelled == [bench.app()]


def test_r06_giving_up_waits_a_little_only(bench: Any) -> None:
    bench.watch()
    begin_ns = bench.now_ns
    ender(bench).give_up(Cause.LAUNCH, TEXT, 10, bench.tick)
    assert 10e9 <= bench.now_ns - begin_ns < 11e9
    (end,) = bench.events("attempt_ended")
    assert end.data["evidence"]["seen"] is False
    assert end.data["evidence"]["text"] == f"{TEXT} It was still ending."
    assert bench.job_state() is JobState.FAILED


def test_r06_a_training_that_cannot_be_told_to_end_is_not_closed(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.watch()
    asked: list[str] = []

    def refuse(handle: str) -> None:
        asked.append(handle)
        raise LaunchError("no route to host")

    monkeypatch.setattr(bench.gateway, "cancel", refuse)
    assert "may still run" in ender(bench).give_up(Cause.LAUNCH, TEXT, 2, bench.tick)
    assert len(asked) > 2
    assert reasons(bench) == [Cause.LAUNCH]
    assert bench.job_state() is None


def test_giving_up_a_job_whose_training_is_over_asks_for_nothing(bench: Any) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), exit_code=1)
    bench.ends("FAILED")
    watcher.poll()
    ender(bench).give_up(Cause.APPLICATION, TEXT, 10, bench.tick)
    assert (reasons(bench), causes(bench)) == ([], [Cause.APPLICATION])
    assert bench.job_state() is JobState.FAILED
    assert bench.gateway.cancelled == []


def test_a_success_seen_as_the_task_fails_is_left_to_the_cleared_try(bench: Any) -> None:
    bench.watch()
    bench.ends("SUCCEEDED")
    assert ender(bench).give_up(Cause.LAUNCH, TEXT, 10, bench.tick) == "closed as succeeded"
    assert bench.job_state() is JobState.SUCCEEDED
    cleared = bench.watch(try_number=2, max_tries=5)
    assert cleared.poll().cause is None
    assert len(bench.gateway.submitted) == 1
    bench.watch(try_number=3, max_tries=6)  # heard by now: a clear begins anew
    assert len(bench.gateway.submitted) == 2


def test_a_success_seen_as_a_user_ends_the_task_is_nobodys(bench: Any) -> None:
    bench.watch()
    bench.ends("SUCCEEDED")
    assert ender(bench).end(USER, TEXT, bench.tick) == "closed as succeeded"
    bench.watch(try_number=2, max_tries=9)
    assert len(bench.gateway.submitted) == 2
