"""Level 1: what counts as effective, and where the rest goes by position."""

from __future__ import annotations

import pytest


def test_first_example_by_a_writer_that_closes_nothing(history, in_seconds) -> None:
    """One interval over both steps, and the compilation nested in it."""
    history.open("local_detached").submit(0).session(0, 0)
    history.phase("device_init", 0, 10).phase("compile", 10, 12)
    history.steps(10, 14, (0, 2), steps=2).session_ended(14)
    metric = history.ended(14, None).job_ended(14).measure()
    assert in_seconds(metric.phases_ns) == {"device_init": 10, "compile": 2, "train": 2}
    assert metric.quality == "partial"
    assert any("estimate" in reason for reason in metric.quality_reasons)


def test_steady_and_shutdown(history, in_seconds) -> None:
    """Save and evaluation between steps are steady; what follows the last step is shutdown."""
    history.open().submit(0).state(20, allocated=15, started=18).session(20, 30)
    history.phase("first_batch", 40, 45)
    history.steps(45, 47, (0, 1), other=0.5).steps(47, 57, (1, 11), steps=10, wait=3)
    history.phase("checkpoint_save", 57, 60).phase("evaluation", 60, 70)
    history.steps(70, 75, (11, 16), steps=5).phase("shutdown", 75, 80).session_ended(80)
    history.state(86, state="SUCCEEDED", allocated=15, ended=85).ended(87, None)
    metric = history.job_ended(87).measure()
    assert in_seconds(metric.phases_ns) == {
        "queue": 15,
        "hardware_setup": 5,
        "launcher_init": 10,
        "trainer_init": 10,
        "first_batch": 5,
        "train": 13.5,
        "loop_other": 0.5,
        "data_wait": 3,
        "checkpoint_save": 3,
        "evaluation": 10,
        "shutdown": 10,
    }
    assert in_seconds(metric.levels_ns) == {
        "effective": 13.5,
        "start": 45,
        "recovery": 0,
        "steady": 16.5,
        "shutdown": 10,
    }
    assert in_seconds(metric.components_ns) == {
        "scheduling": 20,
        "trainer_init": 25,
        "pt2_compile": 0,
        "effective": 13.5,
        "wasted": 16.5,
        "shutdown": 10,
        "unattributed": 0,
    }
    assert metric.wall_ns == 85 * 10**9
    assert metric.held_ns == 70 * 10**9
    assert metric.quality == "complete", metric.quality_reasons
    assert metric.ett_pct_held == pytest.approx(100 * 13.5 / 70)


def test_replay_after_a_resume_is_recovery_and_not_effective(history, in_seconds) -> None:
    """Trains to 90, saved 60: the 30 repeated are replay, and only the next step recovers."""
    history.open("local_detached").submit(0).session(0, 0).phase("device_init", 0, 10)
    history.train(10, 100, (0, 90)).ended(101, "preempted")
    a2 = (2, 0, 0)
    history.submit(102, 2, "relaunch").session(102, 103, a2, hwm=90)
    resumed = {"checkpoint": "file:///c/60", "cursor": 60, "hwm": 90}
    history.add("resumed", 104, resumed, attempt=a2, rank=0).phase("first_batch", 104, 105, a2)
    history.steps(105, 135, (60, 90), a2, steps=30).train(135, 145, (90, 100), a2)
    history.session_ended(145, attempt=a2).ended(145, None, a2)
    metric = history.job_ended(145).measure()
    assert in_seconds(metric.phases_ns)["replay"] == 30
    assert metric.effective_ns == 100 * 10**9
    assert [(r.ns // 10**9, r.recovered, r.cause) for r in metric.ttr] == [(35, True, "preempted")]
    assert metric.utt_ns == 30 * 10**9
    assert metric.attempts[1].cursor_from == 60
    assert metric.attempts[1].resumed_from == "file:///c/60"


def test_an_interval_across_the_mark_is_split_and_flagged(history, in_seconds) -> None:
    history.open("local_detached", hwm=5).submit(0).session(0, 0)
    history.steps(0, 10, (0, 10), steps=10, wait=2).session_ended(10)
    metric = history.ended(10, None).job_ended(10).measure()
    assert in_seconds(metric.phases_ns) == {"data_wait": 2, "replay": 4, "train": 4}
    assert any("crosses the high-water mark" in reason for reason in metric.quality_reasons)


def test_one_step_across_the_mark_is_effective(history, in_seconds) -> None:
    """A step is effective when it passes the mark, also when part of its batch is known."""
    history.open("local_detached", hwm=5).submit(0).session(0, 0)
    history.steps(0, 10, (0, 10)).session_ended(10)
    metric = history.ended(10, None).job_ended(10).measure()
    assert in_seconds(metric.phases_ns) == {"train": 10}
    assert metric.quality == "complete"


def test_a_fragment_belongs_to_the_step_that_follows(history, in_seconds) -> None:
    """A compilation inside a step: what the step did before it is train, if the step is new."""
    history.open("local_detached", hwm=1).submit(0).session(0, 0)
    history.steps(0, 1, (0, 0), fragment=True).phase("compile", 1, 3).steps(3, 4, (0, 1))
    history.steps(4, 5, (1, 1), fragment=True).phase("compile", 5, 7).steps(7, 9, (1, 2))
    history.steps(9, 10, (2, 2), fragment=True).phase("compile", 10, None)
    history.add("failure", 12, {"exit_code": 1}, attempt=(1, 0, 0), rank=0)
    metric = history.ended(12, "application").job_ended(12, "failed", "application").measure()
    assert in_seconds(metric.phases_ns) == {"replay": 2, "compile": 6, "train": 3, "loop_other": 1}
    assert metric.tts_ns == 6 * 10**9
    assert metric.nof_by_layer == {"none": 1}
    assert metric.cause == "application"


def test_an_interval_without_a_step_advances_nothing(history, in_seconds) -> None:
    """Waiting at a cursor that is new is no training; a fragment before it was given up."""
    history.open("local_detached").submit(0).session(0, 0)
    history.steps(0, 3, (1000, 1000), steps=0, wait=3).steps(3, 5, (1000, 1001))
    history.steps(5, 6, (1001, 1001), fragment=True).phase("evaluation", 6, 7)
    history.steps(7, 9, (1001, 1001), steps=0, other=2).session_ended(9)
    metric = history.ended(9, None).job_ended(9).measure()
    assert in_seconds(metric.phases_ns) == {
        "data_wait": 3,
        "train": 2,
        "loop_other": 3,
        "evaluation": 1,
    }
    assert metric.tts_ns == 3 * 10**9
    assert in_seconds(metric.levels_ns)["shutdown"] == 4
