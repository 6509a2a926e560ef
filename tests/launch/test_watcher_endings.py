"""The watcher against a scripted scheduler: relaunches, deadlines, verdicts, and that all ends."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_ett.errors import Fenced, JobLogError, LaunchError
from airflow_ett.events import AttemptId, Cause, JobState, Layer
from airflow_ett.launch.limits import UNKNOWN_GRACE_S, Limits

KILLED = {"signal": 9}
RAISED = {"exit_code": 1, "error": {"type": "ValueError", "message": "bad batch"}}


def test_a_killed_trainer_is_relaunched_at_once_within_the_try(bench: Any, caplog: Any) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), **KILLED)
    bench.ends("FAILED")
    with caplog.at_level(logging.INFO):
        assert watcher.poll() is None
    (line,) = [record.getMessage() for record in caplog.records if "Relaunched" in record.message]
    assert "submission 1 ended with cause infrastructure: " in line
    assert line.endswith(
        f"Relaunched as {bench.events('submitted')[-1].data['app']}, from cursor 0."
    )
    assert len(bench.gateway.submitted) == 2
    bench.ends("SUCCEEDED")
    assert watcher.poll().cause is None
    layers = [e.data["layer"] for e in bench.events("submitted")]
    assert layers == [Layer.FIRST, Layer.RELAUNCH]


def test_a_submission_knows_the_newest_checkpoint_that_was_told_of(bench: Any) -> None:
    watcher = bench.watch()
    log = bench.trainer(AttemptId(1))
    for cursor in (64, 128):
        log.append("checkpoint_committed", {"checkpoint": f"/c/{cursor}", "cursor": cursor})
    bench.reply(AttemptId(1), **KILLED)
    bench.ends("FAILED")
    watcher.poll()
    bench.reply(AttemptId(2), **KILLED)
    bench.ends("FAILED")
    watcher.poll()
    watcher.poll()
    assert [context.resume_cursor for context in bench.gateway.contexts] == [0, 128, 128]
    assert [e.data["resume_cursor"] for e in bench.events("submitted")] == [0, 128, 128]


def test_relaunches_back_off_and_end(bench: Any) -> None:
    watcher = bench.watch()
    delays = []
    for number in range(1, 5):
        bench.reply(AttemptId(number), **KILLED)
        bench.ends("FAILED")
        outcome = watcher.poll()
        waited = 0.0
        while outcome is None and len(bench.gateway.submitted) == number and waited < 60:
            bench.tick(0.5)
            waited += 0.5
            outcome = watcher.poll()
        delays.append(waited)
    assert outcome is not None
    assert outcome.cause is Cause.INFRASTRUCTURE
    assert len(bench.gateway.submitted) == 4
    assert delays[0] == 0
    assert 0 < delays[1] < delays[2]
    assert bench.job_state() is None


def test_an_error_ends_the_try_and_the_next_one_submits(bench: Any) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), **RAISED)
    bench.ends("FAILED")
    outcome = watcher.poll()
    assert outcome.cause is Cause.APPLICATION
    for word in (
        "ValueError: bad batch",
        "rank 0 on gpu-1",
        "CUDA error",
        "fake://",
        "application",
    ):
        assert word in outcome.message
    bench.watch(try_number=2)
    layers = [e.data["layer"] for e in bench.events("submitted")]
    assert layers == [Layer.FIRST, Layer.AIRFLOW]
    assert bench.gateway.submitted[0] != bench.gateway.submitted[1]


def test_a_trigger_that_starts_again_reports_an_end_already_noted(bench: Any) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), **RAISED)
    bench.ends("FAILED")
    watcher.poll()
    again = bench.watch(mode="trigger")
    assert again.poll().cause is Cause.APPLICATION
    assert len(bench.gateway.submitted) == 1


def test_a_relaunch_that_is_refused_once_is_followed_by_another(bench: Any) -> None:
    """A scheduler that fails over refuses for a moment: without retries that ended the job."""
    watcher = bench.watch()
    bench.reply(AttemptId(1), **KILLED)
    bench.gateway.refuse = True
    bench.ends("FAILED")
    assert watcher.poll() is None
    assert bench.events("attempt_ended")[-1].data["cause"] == Cause.LAUNCH
    bench.gateway.refuse = False
    assert watcher.poll() is None
    assert len(bench.gateway.submitted) == 1  # it rests
    bench.tick(1)
    assert watcher.poll() is None
    assert [e.data["submission"] for e in bench.events("submitted")] == [1, 3]


def test_relaunches_that_are_always_refused_are_a_launch_failure(bench: Any) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), **KILLED)
    bench.gateway.refuse = True
    bench.ends("FAILED")
    outcomes = []
    for _ in range(20):
        bench.tick(1)
        outcomes.append(watcher.poll())
    outcome = next(outcome for outcome in outcomes if outcome)
    assert outcome.cause is Cause.LAUNCH
    assert "the queue is closed" in outcome.message
    assert len(bench.events("submit_intended")) == 1 + bench.request.max_relaunches


def test_a_trigger_that_died_before_the_relaunch_makes_it(bench: Any) -> None:
    watcher = bench.watch()
    for number in (1, 2):
        bench.reply(AttemptId(number), **KILLED)
        bench.ends("FAILED")
        watcher.poll()
    assert len(bench.gateway.submitted) == 2
    again = bench.watch(mode="trigger")
    assert len(bench.gateway.submitted) == 2  # the second relaunch rests, whoever makes it
    bench.tick(1)
    assert again.poll() is None
    assert len(bench.gateway.submitted) == 3
    assert bench.events("submitted")[-1].data["layer"] == Layer.RELAUNCH


def test_r12_states_that_end_the_wait_at_the_next_poll(bench: Any) -> None:
    for state in ("SUCCEEDED", "FAILED", "CANCELLED"):
        watcher = bench.watch()
        bench.ends(state)
        assert watcher.poll() is not None
        watcher.close_job(JobState.FAILED, None)


@pytest.mark.parametrize("state", [None, "UNKNOWN", LaunchError("connection refused")])
def test_r15_a_forgotten_job_ends_as_vanished_after_the_grace(bench: Any, state: Any) -> None:
    watcher = bench.watch()
    bench.ends(state)
    assert watcher.poll() is None
    bench.tick(UNKNOWN_GRACE_S - 1)
    assert watcher.poll() is None
    bench.tick(2)
    assert watcher.poll().cause is Cause.VANISHED


def test_r14_one_hiccup_is_forgiven(bench: Any) -> None:
    watcher = bench.watch()
    for state in ("RUNNING", LaunchError("reset"), None, "RUNNING"):
        bench.ends(state)
        assert watcher.poll() is None
        bench.tick(UNKNOWN_GRACE_S * 0.9)
    bench.ends("SUCCEEDED")
    assert watcher.poll().cause is None


def test_s06_the_trainers_own_end_decides_where_the_scheduler_forgot(bench: Any) -> None:
    watcher = bench.watch()
    bench.trainer(AttemptId(1)).append("session_ended", {"outcome": "success"})
    bench.ends(None)
    watcher.poll()
    bench.tick(UNKNOWN_GRACE_S + 1)
    outcome = watcher.poll()
    assert outcome.cause is None
    assert "forgotten" in outcome.message


def test_r07_the_deadline_cancels_once(bench: Any) -> None:
    watcher = bench.watch(limits=Limits(bench.now_ns + 5_000_000_000))
    assert watcher.poll() is None
    assert bench.gateway.cancelled == []
    bench.tick(5)
    watcher.poll()
    bench.ends("CANCELLED")
    assert watcher.poll().cause is Cause.TIMEOUT
    assert bench.gateway.cancelled == [bench.app()]


def test_no_relaunch_begins_after_the_deadline(bench: Any) -> None:
    watcher = bench.watch(limits=Limits(bench.now_ns + 5_000_000_000))
    bench.reply(AttemptId(1), **KILLED)
    bench.tick(4)
    bench.ends("FAILED")
    watcher.poll()
    assert len(bench.gateway.submitted) == 2
    bench.reply(AttemptId(2), **KILLED)
    bench.ends("FAILED")
    assert watcher.poll() is None
    bench.tick(2)
    assert watcher.poll().cause is Cause.TIMEOUT
    assert len(bench.gateway.submitted) == 2


def test_a_trigger_restarted_during_a_deadlines_cancel_submits_nothing(bench: Any) -> None:
    limits = Limits(bench.now_ns + 5_000_000_000)
    bench.watch(limits=limits)
    bench.tick(6)
    again = bench.watch(mode="trigger", limits=limits)
    again.poll()
    third = bench.watch(mode="trigger", limits=limits)
    bench.ends("CANCELLED")
    assert third.poll().cause is Cause.TIMEOUT
    assert len(bench.gateway.submitted) == 1


def test_a_job_that_vanished_is_cancelled_all_the_same(bench: Any) -> None:
    watcher = bench.watch()
    bench.ends(None)
    watcher.poll()
    bench.tick(UNKNOWN_GRACE_S + 1)
    assert watcher.poll().cause is Cause.VANISHED
    assert bench.gateway.cancelled == [bench.app()]


def test_who_loses_the_claim_while_reading_the_last_lines_writes_no_end(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = bench.watch()
    bench.ends("FAILED")
    newer: list[Any] = []

    def slowly(*_: Any) -> list[str]:
        monkeypatch.undo()
        newer.append(bench.watch(mode="trigger"))
        return []

    monkeypatch.setattr(bench.gateway, "last_lines", slowly)
    with pytest.raises(Fenced):
        watcher.poll()
    assert newer[0].poll() is not None
    assert [event.writer for event in bench.events("attempt_ended")] == ["launcher-2"]


def test_a_trigger_that_starts_again_after_the_deadline_does_not_relaunch(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(bench.now_ns + 100_000_000_000)
    watcher = bench.watch(limits=limits)
    bench.reply(AttemptId(1), **KILLED)
    bench.ends("FAILED")
    monkeypatch.setattr(watcher, "_after", lambda last: None)  # its process dies here
    watcher.poll()
    bench.tick(1000)
    again = bench.watch(mode="trigger", limits=limits)
    outcome = again.poll()
    assert outcome.cause is Cause.TIMEOUT
    assert "deadline" in outcome.message
    assert "used up" not in outcome.message
    assert len(bench.gateway.submitted) == 1


def test_a_relaunch_whose_handle_could_not_be_noted_is_no_reason_for_another(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), **KILLED)
    bench.ends("FAILED")

    def full(*_: Any) -> None:
        raise JobLogError("No space left on device")

    with monkeypatch.context() as away:
        away.setattr(watcher._ledger, "handed_over", full)
        with pytest.raises(JobLogError):
            watcher.poll()
    assert watcher.poll() is None
    bench.reply(AttemptId(2), **RAISED)
    bench.ends("FAILED")
    assert watcher.poll().cause is Cause.APPLICATION
    assert len(bench.gateway.submitted) == 2
