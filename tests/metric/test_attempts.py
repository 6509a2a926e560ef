"""Attempts on every layer: how each ends, what it counts as, how its uncovered time is named."""

from __future__ import annotations

import pytest


def test_dies_before_its_first_step(history, in_seconds) -> None:
    """An attempt that dies while it builds the model is a failure with a recovery of its own."""
    history.open().submit(0).state(6, allocated=5, started=5).session(7, 9)
    history.phase("train_module_creation", 10, None)
    history.add("failure", 14, {"exit_code": 1}, attempt=(1, 0, 0), rank=0)
    history.ended(16, "application").submit(20, 2, "airflow", 2)
    history.state(22, 2, allocated=21).session(24, 25, (2, 0, 0)).train(30, 40, (0, 10), (2, 0, 0))
    history.session_ended(40, attempt=(2, 0, 0)).ended(41, None, (2, 0, 0))
    metric = history.job_ended(41).measure()
    assert in_seconds(metric.attempts[0].phases_ns) == {
        "queue": 5,
        "hardware_setup": 2,
        "launcher_init": 2,
        "trainer_init": 1,
        "train_module_creation": 4,
        "failure_detection": 2,
        "retry_wait": 4,
    }
    assert in_seconds(metric.levels_ns)["start"] == 14
    assert [(r.ns // 10**9, r.recovered) for r in metric.ttr] == [(16, True)]
    assert metric.nof_by_layer == {"airflow": 1}
    assert metric.attempts[0].cursor_to is None
    assert metric.attempts[1].try_number == 2


def test_preempted_in_the_queue(history, in_seconds) -> None:
    """It never got a machine: all its time is queue until the scheduler ended it."""
    history.open().submit(0).state(30, state="CANCELLED", ended=28).ended(31, "preempted")
    history.submit(33, 2, "relaunch").state(36, 2, allocated=35)
    history.session(36, 37, (2, 0, 0)).train(38, 48, (0, 10), (2, 0, 0))
    history.session_ended(48, attempt=(2, 0, 0)).ended(48, None, (2, 0, 0))
    metric = history.job_ended(48).measure()
    assert in_seconds(metric.attempts[0].phases_ns) == {
        "queue": 28,
        "failure_detection": 3,
        "retry_wait": 2,
    }
    assert metric.nof == 1
    assert metric.held_ns == 13 * 10**9
    assert metric.quality == "complete", metric.quality_reasons


def test_users_clear_is_no_failure_but_a_recovery(history, in_seconds) -> None:
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("user_restart", 14, {"try": 2})
    history.add("cancel_requested", 14, {"submission": 1, "reason": "user_restart"})
    history.add("signal", 15, {"signal": 15}, attempt=(1, 0, 0), rank=0)
    history.phase("checkpoint_save", 15, 18)
    history.add("process_ended", 19, {}, attempt=(1, 0, 0), rank=0).ended(20, "user_restart")
    history.submit(21, 2, "airflow", 2).state(22, 2, allocated=22)
    history.session(23, 24, (2, 0, 0), hwm=10).train(25, 35, (10, 20), (2, 0, 0))
    history.session_ended(35, attempt=(2, 0, 0)).ended(35, None, (2, 0, 0))
    metric = history.job_ended(35).measure()
    assert metric.nof == 0
    assert [(r.ns // 10**9, r.recovered, r.cause) for r in metric.ttr] == [
        (10, True, "user_restart")
    ]
    assert in_seconds(metric.attempts[0].phases_ns) == {
        "queue": 1,
        "hardware_setup": 1,
        "launcher_init": 1,
        "trainer_init": 1,
        "train": 10,
        "unattributed": 1,
        "checkpoint_save": 3,
        "shutdown": 1,
        "retry_wait": 2,
    }


def test_the_wait_after_a_users_restart_is_no_shutdown(history, in_seconds) -> None:
    """It lasts until the last sign of life, or the scheduler's end; then one waits for the next."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("cancel_requested", 14, {"submission": 1, "reason": "user_restart"})
    history.add("signal", 14, {"signal": 15}, attempt=(1, 0, 0), rank=0)
    history.add("process_ended", 16, {}, attempt=(1, 0, 0), rank=0)
    history.state(40, state="CANCELLED", allocated=1, ended=17).ended(40, "user_restart")
    history.submit(45, 2, "airflow", 2)
    first = in_seconds(history.measure(now=46).attempts[0].phases_ns)
    assert (first["shutdown"], first["retry_wait"]) == (3, 28)
    assert "failure_detection" not in first


def test_a_users_restart_in_the_queue_shuts_nothing_down(history, in_seconds) -> None:
    history.open().submit(0)
    history.add("cancel_requested", 10, {"submission": 1, "reason": "user_restart"})
    history.ended(20, "user_restart").submit(25, 2, "airflow", 2)
    first = in_seconds(history.measure(now=26).attempts[0].phases_ns)
    assert {name: ns for name, ns in first.items() if ns} == {"queue": 10, "retry_wait": 15}


def test_sessions_in_turn(history, in_seconds) -> None:
    """The second one knows of the first one's training: that is no training before the attempt."""
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10))
    history.phase("shutdown", 10, None).session_ended(11)
    history.add("session_started", 13, {"cursor_hwm": 10}, attempt=(1, 0, 0), rank=0)
    assert history.measure(now=14).phases_ns["unattributed"] == 3 * 10**9
    resumed = {"checkpoint": "c", "cursor": 10, "hwm": 10}
    history.add("resumed", 14, resumed, attempt=(1, 0, 0), rank=0).train(15, 25, (10, 20))
    history.phase("shutdown", 25, None).session_ended(26).ended(27, None).job_ended(27)
    metric = history.measure()
    assert in_seconds(metric.phases_ns) == {"train": 20, "shutdown": 2, "unattributed": 4}
    assert in_seconds(metric.levels_ns)["shutdown"] == 1
    assert metric.quality == "complete", metric.quality_reasons


def test_a_second_session_that_dies_has_its_number_reserved(history) -> None:
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).session_ended(11)
    history.add("session_started", 13, {"cursor_hwm": 10}, attempt=(1, 0, 0), rank=0)
    history.phase("evaluation", 14, 15).steps(15, 16, (10, 11)).phase("evaluation", 17, 18)
    assert history.events.pop(-3).kind == "interval"
    history.ended(20, "infrastructure").job_ended(20, "failed")
    metric = history.measure()
    assert not any("missing" in reason for reason in metric.quality_reasons)


def test_cancelled_for_good(history, in_seconds) -> None:
    """S lies at the end of the last step; what follows is shutdown and no recovery."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("cancel_requested", 15, {"submission": 1, "reason": "user_cancelled"})
    history.add("signal", 16, {"signal": 15}, attempt=(1, 0, 0), rank=0)
    history.state(20, state="CANCELLED", ended=19).ended(20, "user_cancelled")
    metric = history.job_ended(20, "cancelled", "user_cancelled").measure()
    assert (metric.nof, metric.ttr, metric.state) == (0, (), "cancelled")
    assert metric.cause == "user_cancelled"
    assert in_seconds(metric.levels_ns) == {
        "effective": 10,
        "start": 4,
        "recovery": 0,
        "steady": 0,
        "shutdown": 5,
    }
    assert metric.at_risk_ns == 10 * 10**9
    assert metric.end_ns == 19 * 10**9


def test_preempted_and_tidied_up(history, in_seconds) -> None:
    """After SIGTERM it saves and shuts down: an open shutdown lasts while the process lives."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("signal", 13, {"signal": 15}, attempt=(1, 0, 0), rank=0)
    history.phase("shutdown", 14, None).phase("checkpoint_save", 15, 17)
    history.session_ended(18, "preempted").add("process_ended", 19, {}, attempt=(1, 0, 0), rank=0)
    history.ended(22, "preempted").submit(25, 2, "relaunch").session(26, 27, (2, 0, 0), hwm=10)
    metric = history.measure(now=28)
    first = in_seconds(metric.attempts[0].phases_ns)
    assert {name: first[name] for name in ("train", "checkpoint_save", "shutdown")} == {
        "train": 10,
        "checkpoint_save": 2,
        "shutdown": 3,
    }
    assert (first["failure_detection"], first["retry_wait"]) == (3, 3)


def test_hung_job(history, in_seconds) -> None:
    """Only a watchdog books `stalled`; the interruption lies where the stall began."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("stalled", 44, {"begin": 14 * 10**9}, attempt=(1, 0, 0), rank=0)
    history.add("signal", 50, {"signal": 6}, attempt=(1, 0, 0), rank=0)
    history.ended(52, "infrastructure").submit(53, 2, "relaunch").state(54, 2, allocated=53)
    history.session(54, 55, (2, 0, 0), hwm=10).train(56, 66, (10, 20), (2, 0, 0))
    history.session_ended(66, attempt=(2, 0, 0)).ended(66, None, (2, 0, 0))
    metric = history.job_ended(66).measure()
    first = in_seconds(metric.attempts[0].phases_ns)
    assert (first["stalled"], first["failure_detection"], first["retry_wait"]) == (36, 2, 1)
    assert [r.ns // 10**9 for r in metric.ttr] == [42]


def test_a_stall_that_passed_is_no_interruption(history, in_seconds) -> None:
    history.open("local_detached").submit(0).session(0, 0).train(0, 30, (0, 10))
    stall = {"begin": 10 * 10**9, "end": 20 * 10**9}
    history.add("stalled", 20, stall, attempt=(1, 0, 0), rank=0)
    history.session_ended(30).ended(30, None)
    metric = history.job_ended(30).measure()
    assert in_seconds(metric.phases_ns) == {"train": 20, "stalled": 10}
    assert metric.nof == 0


def test_silence_is_unattributed_and_not_stalled(history, in_seconds) -> None:
    history.open("local_detached").submit(0).session(0, 0).train(0, 30, (0, 10))
    history.steps(70, 80, (10, 20), steps=10).session_ended(80).ended(80, None)
    metric = history.job_ended(80).measure()
    assert in_seconds(metric.phases_ns) == {"train": 40, "unattributed": 40}


def test_never_instrumented(history, in_seconds) -> None:
    """Scheduling phases and no ETT%; what the process did is nobody's guess."""
    history.open().submit(0).state(10, allocated=4, started=9)
    history.state(60, state="SUCCEEDED", allocated=4, started=9, ended=59).ended(60, None)
    metric = history.job_ended(60).measure()
    assert (metric.quality, metric.ett_pct, metric.ett_pct_paper) == ("launcher_only", None, None)
    assert in_seconds(metric.phases_ns) == {"queue": 4, "hardware_setup": 5, "unattributed": 50}
    assert metric.held_ns == 55 * 10**9


def test_every_layer_restarts(history) -> None:
    """Two elastic restarts, a requeue and an Airflow retry: four failures, by layer (R39)."""
    history.open().submit(0)
    plan = [
        ((1, 0, 0), 0, 10),
        ((1, 0, 1), 12, 20),
        ((1, 0, 2), 22, 30),
        ((1, 1, 0), 36, 45),
        ((2, 0, 0), 51, 60),
    ]
    history.state(1, allocated=0).state(36, restart=1, allocated=35)
    for at, (attempt, begin, end) in enumerate(plan):
        if attempt == (2, 0, 0):
            history.ended(46, "application", (1, 1, 0)).submit(50, 2, "airflow", 2)
            history.state(51, 2, allocated=50)
        history.session(begin, begin + 1, attempt, hwm=10 * at)
        history.train(begin + 2, end, (10 * at, 10 * at + 10), attempt, first=2)
        if at < 4:
            failure = {"exit_code": 1}
            history.add("failure", end, failure, attempt=attempt, rank=0)
    history.session_ended(60, attempt=(2, 0, 0)).ended(60, None, (2, 0, 0))
    metric = history.job_ended(60).measure()
    assert metric.nof == 4
    assert metric.nof_by_layer == {"elastic": 2, "scheduler": 1, "airflow": 1}
    assert metric.nof_by_cause == {"unknown": 3, "application": 1}
    assert [r.ns // 10**9 for r in metric.ttr] == [4, 4, 8, 8]
    assert [a.layer for a in metric.attempts] == [
        "first",
        "elastic",
        "elastic",
        "scheduler",
        "airflow",
    ]
    assert metric.quality == "complete", metric.quality_reasons


def test_crash_loop_that_never_recovers(history) -> None:
    """Every interruption counts, the last one too; none recovered but by the end of the loop."""
    history.open("local_detached")
    for number in range(1, 4):
        at, name = 10 * number, (number, 0, 0)
        history.submit(at, number, "first" if number == 1 else "relaunch")
        history.session(at + 1, at + 2, name)
        history.add("failure", at + 5, {"exit_code": 1}, attempt=name, rank=0)
        history.ended(at + 6, "infrastructure", name)
    metric = history.job_ended(40, "failed", "infrastructure").measure()
    assert metric.nof == 3
    assert metric.nof_by_layer == {"relaunch": 2, "none": 1}
    assert [r.recovered for r in metric.ttr] == [False, False, False]
    assert metric.ett_pct == 0
    assert metric.end_ns == 35 * 10**9


def test_launch_refused(history) -> None:
    """An intent that the scheduler refused is an attempt: it has a begin, an end and a cause."""
    intent = {"submission": 1, "layer": "first", "try": 1}
    history.open("local_detached").add("submit_intended", 1, intent).ended(2, "launch")
    metric = history.job_ended(3, "failed", "launch").measure()
    assert metric.nof_by_cause == {"launch": 1}
    assert metric.wall_ns == 10**9
    assert metric.attempts[0].layer == "first"


def test_a_later_try_adopts(history) -> None:
    """Adoption begins no attempt; a requeue after it belongs to the adopting try."""
    history.open().submit(0).state(1, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("adopted", 8, {"submission": 1, "handle": "slurm://s/1", "try": 2})
    history.add("failure", 14, {"signal": 9}, attempt=(1, 0, 0), rank=0)
    history.state(20, restart=1, allocated=19).session(21, 22, (1, 1, 0), hwm=10)
    history.train(23, 33, (10, 20), (1, 1, 0)).session_ended(33, attempt=(1, 1, 0))
    metric = history.ended(34, None, (1, 1, 0)).job_ended(34).measure()
    assert [(a.layer, a.try_number) for a in metric.attempts] == [("first", 1), ("scheduler", 2)]
    assert metric.nof_by_layer == {"scheduler": 1}


def test_two_ranks_with_different_first_steps(history, in_seconds) -> None:
    """The last rank leads until its first step begins, then rank 0's lane is followed."""
    history.open("local_detached").submit(0).session(0, 1).session(0, 2, rank=1)
    history.phase("first_batch", 2, 4).steps(4, 21, (0, 1))
    history.phase("train_module_creation", 3, 15, rank=1).phase("first_batch", 15, 20, rank=1)
    history.steps(20, 21, (0, 1), rank=1)
    history.steps(21, 31, (1, 11), steps=10).steps(21, 31, (1, 11), steps=10, rank=1)
    metric = history.session_ended(31).ended(31, None).job_ended(31).measure()
    assert in_seconds(metric.phases_ns) == {
        "launcher_init": 2,
        "trainer_init": 1,
        "train_module_creation": 12,
        "first_batch": 5,
        "train": 11,
    }
    assert metric.tts_ns == 20 * 10**9


def test_background_lanes_are_shown_and_never_summed(history, in_seconds) -> None:
    history.open("local_detached").submit(0).session(0, 0).train(0, 30, (0, 10))
    history.phase("checkpoint_upload", 5, 25, lane="upload").phase("compile", 3, 9, lane="compiler")
    metric = history.session_ended(30).ended(30, None).job_ended(30).measure()
    assert in_seconds(metric.phases_ns) == {"train": 30}
    beside = [(s.phase, s.lane, s.end_ns - s.begin_ns) for s in metric.spans if s.lane != "main"]
    assert beside == [
        ("compile", "compiler", 6 * 10**9),
        ("checkpoint_upload", "upload", 20 * 10**9),
    ]


def test_upload_and_publish_at_the_end_are_shutdown(history, in_seconds) -> None:
    """Publishing in the trainer holds the accelerators; a last open shutdown lasts to the end."""
    history.open("local_detached").submit(0).session(0, 0).train(0, 30, (0, 10))
    history.phase("publish", 30, 50).phase("shutdown", 50, None)
    history.state(62, state="SUCCEEDED", ended=61).ended(62, None)
    metric = history.job_ended(62).measure()
    assert in_seconds(metric.phases_ns) == {"train": 30, "publish": 20, "shutdown": 11}
    assert in_seconds(metric.levels_ns)["shutdown"] == 31
    assert metric.quality == "complete", metric.quality_reasons


@pytest.mark.parametrize(
    ("scheduler", "phase"), [("slurm", "queue"), ("local_cwd", "hardware_setup")]
)
def test_allocation_unknown(history, in_seconds, scheduler: str, phase: str) -> None:
    """A scheduler without times: the wait is queue and flagged, or set-up where none queues."""
    history.open(scheduler).submit(0).session(7, 8).train(8, 10, (0, 2))
    metric = history.session_ended(10).ended(10, None).job_ended(10).measure()
    assert in_seconds(metric.phases_ns)[phase] == 7
    assert (metric.quality == "complete") is (phase == "hardware_setup")
    assert metric.held_ns == 3 * 10**9
