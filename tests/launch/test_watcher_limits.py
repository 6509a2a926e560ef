"""The watcher's limits: the same instants whoever watches, and a cancel that arrives."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.events import AttemptId, Cause, Layer
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.status import SchedulerStatus

PENDING = SchedulerStatus("PENDING", raw="PENDING", message="Resources")
START = Limits(start_timeout_s=30)


def polls(bench: Any, watcher: Any, seconds: float) -> Any:
    bench.tick(seconds)
    return watcher.poll()


def test_a_submission_that_never_starts_is_cancelled_once_and_says_so(bench: Any) -> None:
    watcher = bench.watch(limits=START)
    bench.ends(PENDING)
    assert polls(bench, watcher, 29) is None
    assert bench.gateway.cancelled == []
    assert polls(bench, watcher, 3) is None
    assert polls(bench, watcher, 3) is None
    assert bench.gateway.cancelled == [bench.app()]
    bench.ends("CANCELLED")
    outcome = polls(bench, watcher, 1)
    assert outcome.cause is Cause.TIMEOUT
    for word in ("Not started 32 s", "start_timeout 30 s", "PENDING: Resources"):
        assert word in outcome.message


def test_a_trigger_that_starts_again_keeps_the_instant(bench: Any) -> None:
    watcher = bench.watch(limits=START)
    bench.ends(PENDING)
    polls(bench, watcher, 20)
    again = bench.watch(mode="trigger", limits=START)
    polls(bench, again, 9)
    assert bench.gateway.cancelled == []
    polls(bench, again, 1)
    assert bench.gateway.cancelled == [bench.app()]
    third = bench.watch(mode="trigger", limits=START)
    bench.ends("CANCELLED")
    outcome = third.poll()
    assert outcome.cause is Cause.TIMEOUT
    assert "Not started 30 s" in outcome.message


def test_each_submission_has_its_own_time_to_start(bench: Any) -> None:
    watcher = bench.watch(limits=START)
    polls(bench, watcher, 29)
    bench.reply(AttemptId(1), signal=9)
    bench.ends("FAILED")
    polls(bench, watcher, 100)
    assert len(bench.gateway.submitted) == 2
    bench.ends(PENDING)
    polls(bench, watcher, 29)
    assert bench.gateway.cancelled == []
    polls(bench, watcher, 2)
    assert bench.gateway.cancelled == [bench.app()]


def test_what_ran_once_has_started_even_when_it_waits_again(bench: Any) -> None:
    watcher = bench.watch(limits=START)
    polls(bench, watcher, 1)
    bench.ends(PENDING)
    polls(bench, watcher, 99)
    polls(bench, bench.watch(mode="trigger", limits=START), 99)
    assert bench.gateway.cancelled == []


def test_a_process_of_the_trainers_counts_where_the_scheduler_is_behind(bench: Any) -> None:
    watcher = bench.watch(limits=START)
    bench.ends(PENDING)
    bench.trainer(AttemptId(1)).append("process_started", {"role": "trainer"})
    polls(bench, watcher, 99)
    assert bench.gateway.cancelled == []


def test_a_late_start_becomes_an_airflow_retry_with_a_new_submission(bench: Any) -> None:
    watcher = bench.watch(limits=START)
    bench.ends(PENDING)
    polls(bench, watcher, 31)
    bench.ends("CANCELLED")
    assert polls(bench, watcher, 1).cause is Cause.TIMEOUT
    assert len(bench.gateway.submitted) == 1
    bench.watch(try_number=2, limits=START)
    assert [e.data["layer"] for e in bench.events("submitted")] == [Layer.FIRST, Layer.AIRFLOW]


def test_a_deadlines_cancel_is_repeated_until_the_scheduler_can_be_asked(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = bench.watch(limits=Limits(bench.now_ns + 5 * 10**9))

    def refuse(handle: str) -> None:
        raise LaunchError("connection refused")

    monkeypatch.setattr(bench.gateway, "cancel", refuse)
    assert polls(bench, watcher, 6) is None
    monkeypatch.undo()
    assert polls(bench, watcher, 1) is None
    assert polls(bench, watcher, 1) is None
    assert bench.gateway.cancelled == [bench.app()]
    assert len(bench.events("cancel_requested")) == 1


def test_the_grace_for_a_silent_scheduler_outlives_the_process(bench: Any) -> None:
    limits = Limits(unknown_grace_s=20)
    watcher = bench.watch(limits=limits)
    polls(bench, watcher, 1)
    bench.ends(None)
    assert polls(bench, watcher, 1) is None
    for _ in range(3):
        again = bench.watch(mode="trigger", limits=limits)
        assert polls(bench, again, 6) is None
    assert polls(bench, again, 3).cause is Cause.VANISHED
    words = [e.data["state"] for e in bench.events("scheduler_state")]
    assert words == ["RUNNING", "UNKNOWN"]


def test_one_silence_has_one_grace_however_it_sounds(bench: Any) -> None:
    watcher = bench.watch(limits=Limits(unknown_grace_s=20))
    for state in (None, LaunchError("connection refused"), "UNKNOWN"):
        bench.ends(state)
        assert polls(bench, watcher, 9) is None
    assert polls(bench, watcher, 2).cause is Cause.VANISHED


def test_an_answer_begins_the_grace_anew(bench: Any) -> None:
    watcher = bench.watch(limits=Limits(unknown_grace_s=20))
    for state in (None, "RUNNING", None):
        bench.ends(state)
        assert polls(bench, watcher, 15) is None
    assert polls(bench, watcher, 19) is None
    assert polls(bench, watcher, 1).cause is Cause.VANISHED


def test_a_users_end_of_a_restart_that_is_pending_submits_nothing(bench: Any) -> None:
    bench.watch()
    later = bench.watch(try_number=2, max_tries=4)
    later.user_cancel(wait_s=3, sleep=lambda _: bench.ends("CANCELLED"))
    assert len(bench.gateway.submitted) == 1
    assert bench.job_state() == "cancelled"
