"""Odd lives: what the definition asks for where the log is thin, late or contradictory."""

from __future__ import annotations

import pytest

A1, A2, R1 = (1, 0, 0), (2, 0, 0), (1, 1, 0)
S = 10**9  # a second


def started(history):
    return history.open().submit(0).state(2, allocated=1).session(2, 3)


def test_end_told_without_the_restart_count_belongs_to_the_newest_attempt(history, told):
    """Schedulers that do not tell restarts (-1 -> 0): the last end is not that of attempt 1.0.0."""
    started(history).train(4, 14, (0, 10))
    history.add("process_ended", 15, {"signal": 9}, attempt=A1, rank=0)
    history.session(31, 32, R1, hwm=10).train(33, 43, (10, 20), R1).session_ended(43, attempt=R1)
    history.state(46, state="SUCCEEDED", allocated=1, ended=45).ended(46, None, R1)
    now = told(history.job_ended(46).measure())
    assert now["wall"] == 45
    assert now["held"] == (15 - 1) + (45 - 31)


def test_a_process_before_its_submission_is_told(history, told):
    """Its host's clock is 5 s behind: process start 5 s before the submission, no claim outside."""
    history.open().submit(10).state(12, allocated=11).session(5, 11).train(12, 20, (0, 8))
    history.session_ended(20).ended(20, None).job_ended(20)
    assert told(history.measure())["quality"][0] == "partial"


def test_hwm_stale_after_a_node_loss(history, told):
    """Killed with its open interval and its cursor file: nobody knows the HWM any more."""
    started(history).train(4, 14, (0, 10)).phase("checkpoint_save", 14, 15)
    history.steps(15, 20, (10, 15), steps=5)
    history.events.pop()  # the open interval: never closed by anybody
    history.ended(30, "infrastructure").submit(31, 2, "relaunch").session(32, 33, A2, hwm=0)
    history.steps(34, 44, (0, 10), A2, steps=10).train(44, 54, (10, 20), A2)
    history.session_ended(54, attempt=A2).ended(54, None, A2).job_ended(54)
    assert any("hwm_stale" in reason for reason in told(history.measure())["quality"])


def test_a_failure_that_the_process_outlived_is_no_interruption(history, told):
    """Session 1 raises at 14 and is caught; Session 2 trains 16-116 and dies: cut short at 116."""
    started(history).train(4, 14, (0, 10))
    history.add("failure", 14, {"type": "ValueError"}, attempt=A1, rank=0).session_ended(
        14, "error"
    )
    history.add("session_started", 15, {"cursor_hwm": 10}, attempt=A1, rank=0)
    history.train(16, 56, (10, 50)).phase("evaluation", 56, 76).train(76, 116, (50, 90))
    history.add("failure", 116, {"type": "ValueError"}, attempt=A1, rank=0)
    history.ended(117, "application").submit(118, 2, "airflow", 2).session(118, 119, A2, hwm=90)
    history.train(120, 130, (90, 100), A2).session_ended(130, attempt=A2).ended(130, None, A2)
    now = told(history.job_ended(130).measure())
    assert now["ttr"] == [(4, True)]
    assert now["levels"]["steady"] == 22


def test_a_stall_that_steps_followed_is_over(history, told):
    """The watchdog's second word was lost; training went on at 24 and failed at 44."""
    started(history).train(4, 14, (0, 10))
    history.add("stalled", 20, {"begin": 14 * S}, attempt=A1, rank=0)
    history.steps(24, 44, (10, 30), steps=20).phase("checkpoint_save", 44, 54).steps(
        54, 64, (30, 40), steps=10
    )
    history.add("failure", 64, {"exit_code": 1}, attempt=A1, rank=0).ended(65, "application")
    now = told(history.job_ended(65, "failed", "application").measure())
    assert now["ttr"] == [(0, False)]
    assert now["levels"]["steady"] == 20


def test_a_job_cancelled_in_the_queue_held_nothing(history, told):
    history.open().submit(0)
    history.add("cancel_requested", 10, {"submission": 1, "reason": "user_cancelled"})
    history.state(13, state="CANCELLED", ended=12).ended(13, "user_cancelled")
    assert told(history.job_ended(13, "cancelled").measure())["held"] == 0


def test_an_anchor_told_again_is_no_second_save(history, told):
    """Saved to the end, killed while it ended; the next attempt only names the anchor."""
    started(history).train(4, 14, (0, 10)).phase("checkpoint_save", 14, 16)
    c = {"checkpoint": "file:///c/10", "cursor": 10}
    history.add("checkpoint_saved", 16, {**c, "blocking_ns": 2 * S}, attempt=A1, rank=0)
    history.add("checkpoint_committed", 17, {**c, "bytes": 9}, attempt=A1, rank=0)
    history.ended(18, "preempted").submit(19, 2, "relaunch").session(20, 21, A2, hwm=10)
    history.add("resumed", 22, {**c, "hwm": 10}, attempt=A2, rank=0)
    history.add("checkpoint_committed", 23, {**c, "anchor": True}, attempt=A2, rank=0)
    history.session_ended(23, attempt=A2).ended(23, None, A2)
    metric = history.job_ended(23).measure()
    assert (metric.nos, metric.csbt_ns) == (1, 2 * S)
    assert [(x.uri, x.anchor) for x in metric.checkpoints] == [("file:///c/10", True)]


def test_start_lasts_as_long_as_the_last_rank(history, told):
    """Ranks that do not wait for each other: rank 0 steps from 4 on, rank 1 is in at 20."""
    history.open("local").submit(0).session(0, 1).session(0, 2, rank=1)
    history.train(4, 34, (0, 30), first=2)
    history.phase("train_module_creation", 2, 20, rank=1).steps(20, 34, (0, 14), steps=14, rank=1)
    now = told(history.session_ended(34).ended(34, None).job_ended(34).measure())
    assert now["levels"] == {"start": 20, "effective": 14}


def test_the_rank_that_never_came_explains_the_wait(history, told):
    """Rank 0 waits in its first step from 4 on; rank 1 dies at 15 while it builds the model."""
    history.open("local").submit(0).session(0, 1).session(0, 2, rank=1)
    history.phase("first_batch", 2, 4).phase("train_module_creation", 3, None, rank=1)
    history.add("failure", 15, {"exit_code": 1}, attempt=A1, rank=1).ended(16, "application")
    now = told(history.job_ended(16, "failed", "application").measure())
    assert now["attempts"][0].get("unattributed", 0) == 0
    assert now["attempts"][0]["train_module_creation"] == 12


@pytest.mark.parametrize("allocated", [9, -5])
def test_a_negative_gap_is_told(history, told, allocated):
    """Allocated 4 s after the first process, or 5 s before the submission."""
    history.open().submit(10).state(13, allocated=10 + allocated).session(15, 16).train(
        17, 27, (0, 10)
    )
    history.session_ended(27).ended(27, None).job_ended(27)
    assert told(history.measure())["quality"][0] == "partial"


def test_any_attempt_that_outlives_its_end_is_told(history, told):
    started(history).train(4, 24, (0, 10))
    history.state(26, state="FAILED", allocated=1, ended=14).ended(26, "infrastructure")
    history.submit(30, 2, "relaunch").state(31, 2, allocated=30).session(31, 32, A2, hwm=10)
    history.train(33, 43, (10, 20), A2).session_ended(43, attempt=A2).ended(43, None, A2).job_ended(
        43
    )
    assert told(history.measure())["quality"][0] == "partial"


def test_stalled_time_is_no_training_at_risk(history, told):
    """Step time 0-30 with a stall 10-20 inside it: 20 s trained, so 20 s are lost, not 30."""
    history.open("local").submit(0).session(0, 0).train(0, 30, (0, 10))
    history.add("stalled", 20, {"begin": 10 * S, "end": 20 * S}, attempt=A1, rank=0)
    history.add("failure", 30, {"exit_code": 1}, attempt=A1, rank=0).ended(30, "application")
    history.submit(30, 2, "relaunch").session(30, 30, A2, hwm=10).train(30, 40, (0, 10), A2)
    metric = history.measure()
    assert metric.effective_ns == 20 * S
    assert metric.utt_ns == 20 * S


def test_a_nested_compilation_is_no_training_at_risk(history, told):
    history.open("local").submit(0).session(0, 0).phase("compile", 10, 12).steps(
        10, 14, (0, 2), steps=2
    )
    history.add("failure", 14, {"exit_code": 1}, attempt=A1, rank=0).ended(14, "application")
    metric = history.job_ended(14, "failed", "application").measure()
    assert metric.at_risk_ns == metric.effective_ns == 2 * S


def test_an_attempt_of_which_nothing_was_heard_is_no_hardware_setup(history, told):
    """Ran from 9 to 3600 by the scheduler's word; the log of its node is lost."""
    history.open().submit(0).state(10, allocated=4, started=9)
    history.state(3601, state="FAILED", allocated=4, started=9, ended=3600).ended(
        3601, "infrastructure"
    )
    history.submit(3602, 2, "relaunch").state(3603, 2, allocated=3602).session(3604, 3605, A2)
    history.train(3606, 3616, (0, 10), A2).session_ended(3616, attempt=A2).ended(3616, None, A2)
    first = told(history.job_ended(3616).measure())["attempts"][0]
    assert (first["hardware_setup"], first["unattributed"]) == (5, 3591)


def test_held_and_queue_do_not_overlap(history, told):
    """RUNNING since 5 by the scheduler's word, which tells no allocation; first process at 60."""
    history.open().submit(0).state(6, started=5).session(60, 61).train(62, 72, (0, 10))
    now = told(history.session_ended(72).ended(72, None).job_ended(72).measure())
    assert now["attempts"][0]["queue"] + now["held"] <= now["wall"]


def test_a_second_session_that_restores_is_no_cursor_reset(history, told):
    started(history).train(4, 14, (0, 10)).session_ended(14, "error")
    history.add("session_started", 15, {"cursor_hwm": 10}, attempt=A1, rank=0)
    history.add("resumed", 16, {"checkpoint": "c", "cursor": 5, "hwm": 10}, attempt=A1, rank=0)
    history.steps(16, 21, (5, 10), steps=5).train(21, 31, (10, 20)).session_ended(31)
    now = told(history.ended(31, None).job_ended(31).measure())
    assert now["quality"] == ["complete"]


def test_a_restart_that_is_waited_for_is_a_recovery_while_it_lasts(history, told):
    """A user cleared the task; the next try has not submitted yet. The job is not shutting down."""
    started(history).train(4, 14, (0, 10))
    history.add("cancel_requested", 14, {"submission": 1, "reason": "user_restart"})
    history.add("signal", 14, {"signal": 15}, attempt=A1, rank=0)
    history.add("process_ended", 16, {}, attempt=A1, rank=0).ended(20, "user_restart")
    now = told(history.measure(now=30))
    assert now["ttr"] == [(16, False)]
    assert now["levels"] == {"start": 4, "recovery": 16, "effective": 10}
    assert now["attempts"][0]["retry_wait"] == 14


def test_phases_that_begin_together_nest(history, told):
    """An unclosed shutdown and a save that begin in the same nanosecond: no note."""
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10))
    history.phase("shutdown", 10, None).phase("checkpoint_save", 10, 12).session_ended(14)
    assert told(history.ended(14, None).job_ended(14).measure())["quality"] == ["complete"]
