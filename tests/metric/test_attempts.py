"""What holds of every attempt: where it ends, how its uncovered time is named, whose it is."""

from __future__ import annotations

import pytest


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


def test_launch_refused(history) -> None:
    """An intent that the scheduler refused is an attempt: it has a begin, an end and a cause."""
    intent = {"submission": 1, "layer": "first", "try": 1}
    history.open("local_detached").add("submit_intended", 1, intent).ended(2, "launch")
    metric = history.job_ended(3, "failed", "launch").measure()
    assert metric.nof_by_cause == {"launch": 1}
    assert metric.wall_ns == 10**9
    assert metric.attempts[0].layer == "first"


def test_a_requeue_after_an_adoption_belongs_to_the_adopting_try(history) -> None:
    history.open().submit(0).state(1, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("adopted", 8, {"submission": 1, "handle": "slurm://s/1", "try": 2})
    history.add("failure", 14, {"signal": 9}, attempt=(1, 0, 0), rank=0)
    history.state(20, restart=1, allocated=19).session(21, 22, (1, 1, 0), hwm=10)
    history.train(23, 33, (10, 20), (1, 1, 0)).session_ended(33, attempt=(1, 1, 0))
    metric = history.ended(34, None, (1, 1, 0)).job_ended(34).measure()
    assert [(a.layer, a.try_number) for a in metric.attempts] == [("first", 1), ("scheduler", 2)]
    assert metric.nof_by_layer == {"scheduler": 1}


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
