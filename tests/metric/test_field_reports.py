"""What users of such systems suffer from, by the number of the report, as far as it is accounting.

Where a report's words differ from ``docs/metric.md``, the page wins and the test says how they map.
"""

from __future__ import annotations

import pytest

A1, A2, R1 = (1, 0, 0), (2, 0, 0), (1, 1, 0)
PLAN = [
    ((1, 0, 0), 0, 10),
    ((1, 0, 1), 12, 20),
    ((1, 0, 2), 22, 30),
    ((1, 1, 0), 36, 45),
    ((2, 0, 0), 51, 60),
]


@pytest.mark.parametrize(("trainer", "wall"), [(True, 60), (False, 61)])
def test_r29_durations_shrink_after_deferral(history, trainer: bool, wall: int) -> None:
    """https://github.com/apache/airflow/issues/63240: a task's start is the time it woke up.

    60 s of training, and the deferred task wakes up a second later. The report expects 61 s. Here
    the clock starts at our own ``submitted`` and stops at the last sign of life of a training, so
    the wake-up is no part of it: 60 s. Where nothing but the launcher wrote, it is: 61 s. Who
    claimed the job, and when, is no part of any number.
    """
    history.open("local_detached").submit(0).state(0)
    history.add("claimed", 0, {"epoch": 1, "try": 1, "max_tries": 2, "mode": "task"})
    history.add("claimed", 1, {"epoch": 2, "try": 1, "max_tries": 2, "mode": "trigger"})
    if trainer:
        history.session(0, 1).train(1, 60, (0, 10)).session_ended(60)
    history.ended(61, None).job_ended(61)
    metric = history.measure()
    assert (metric.begin_ns, metric.end_ns) == (0, wall * 10**9)
    history.add("claimed", 61, {"epoch": 3, "try": 1, "max_tries": 2, "mode": "task"})
    assert history.measure().as_dict() == metric.as_dict()


def restarted(history, shift: float = 0, resume: int = 10):
    """Ten steps of 1 s from 2 to 12, a restart, ten more from 20 to 30, on a clock by ``shift``."""
    history.session(1, 2).train(2, 12, (0, 10)).submit(15, 2, "relaunch")
    history.session(17 + shift, 18 + shift, A2, hwm=10)
    at = 20 + shift
    history.train(at, at + 10, (resume, resume + 10), A2).session_ended(at + 10, attempt=A2)
    return history.ended(31, None, A2).job_ended(31)


def test_r30_a_restart_is_noticed_only_by_a_repeated_step(history, told) -> None:
    """ml-goodput-measurement: a clean resume at the next step counts as no interruption.

    Ours counts attempts, and nobody needs to have told of the first one's end. The report's "NoF =
    number of attempts - 1" holds of a job that ends well; of one that fails, all attempts count.
    """
    now = told(restarted(history.open("local").submit(0)).measure())
    assert (now["layers"], now["ttr"], now["utt"]) == ({"relaunch": 1}, [(8, True)], 0)
    assert now["levels"] == {"start": 2, "recovery": 8, "effective": 20}
    assert now["attempts"][0]["failure_detection"] == 3
    assert now["quality"] == ["complete"]


def test_r30_a_missing_start_makes_the_total_zero(history, told) -> None:
    """The clock starts at the first thing known, and the quality says so."""
    now = told(restarted(history).measure())
    assert now["wall"] == 29
    assert now["layers"] == {"relaunch": 1}
    assert now["levels"] == {"start": 1, "recovery": 8, "effective": 20}
    assert now["quality"][0] == "partial"
    for missing in ("no job_opened event", "no submitted event of attempt 1.0.0"):
        assert any(reason.startswith(missing) for reason in now["quality"])


def test_r30_a_host_whose_clock_is_behind(history, told) -> None:
    """The second host is 9 s late: its life seems to begin 7 s before it was submitted at 15.

    What it tells of the time before counts from there, nothing is negative, and it is told.
    """
    now = told(restarted(history.open("local").submit(0), shift=-9).measure())
    assert now["wall"] == 21
    assert now["levels"] == {"start": 2, "recovery": 3, "effective": 16}
    assert now["quality"][0] == "partial"
    assert any("clocks disagree" in reason for reason in now["quality"])


def test_r30_a_crash_without_an_end(history, told) -> None:
    """The last step that was written is the last sign of life; a save that was open ends there.

    Nothing contradicts anything, so this is no partial result: the interruption is when silence
    began.
    """
    history.open("local").submit(0).phase("checkpoint_save", 12, None)
    now = told(restarted(history).measure())
    assert now["attempts"][0] == {
        "hardware_setup": 1,
        "launcher_init": 1,
        "train": 10,
        "failure_detection": 3,
    }
    assert now["layers"] == {"relaunch": 1}
    assert now["quality"] == ["complete"]


def test_r30_overlapping_spans(history, told) -> None:
    """Of two that overlap, the one that began last is the inner one, and time counts once.

    The report calls this inconsistent; here it has one meaning, so the result is complete.
    """
    history.open("local").submit(0).phase("device_init", 2, 6).phase("pre_train", 4, 9)
    history.phase("evaluation", 8, 20).session(1, 2).train(20, 30, (0, 10)).session_ended(30)
    now = told(history.ended(30, None).job_ended(30).measure())
    assert now["attempts"] == [
        {
            "hardware_setup": 1,
            "launcher_init": 1,
            "device_init": 2,
            "pre_train": 4,
            "evaluation": 12,
            "train": 10,
        }
    ]
    assert now["quality"] == ["complete"]


@pytest.mark.parametrize("tells", [True, False])
def test_r39_restarts_on_every_layer_in_one_job(history, tells: bool) -> None:
    """https://github.com/pytorch/pytorch/issues/147064: the number one sees is not what happened.

    Two elastic restarts, a requeue and an Airflow retry: four failures by layer, each with a TTR of
    its own, whether or not the scheduler tells how often it restarted (most do not).
    """
    history.open().submit(0)
    history.state(1, allocated=0).state(36, restart=int(tells), allocated=35)
    for at, (attempt, begin, end) in enumerate(PLAN):
        if attempt == A2:
            history.ended(46, "application", R1).submit(50, 2, "airflow", 2)
            history.state(51, 2, allocated=50)
        history.session(begin, begin + 1, attempt, hwm=10 * at)
        history.train(begin + 2, end, (10 * at, 10 * at + 10), attempt, first=2)
        if at < 4:
            history.add("failure", end, {"exit_code": 1}, attempt=attempt, rank=0)
    history.session_ended(60, attempt=A2).ended(60, None, A2)
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


@pytest.mark.parametrize(("grace", "utt"), [(120, 0), (30, 10)])
def test_r26_the_preemption_checkpoint_is_lost(history, told, grace: int, utt: int) -> None:
    """https://github.com/pytorch/pytorch/issues/119856: killed 30 s after SIGTERM, in mid-save.

    A save of 45 s, from the signal at 14 on, commits within the grace or not: nothing is lost, or
    the 10 s that were trained since the begin. Either way the attempt was cut short by the signal.
    """
    saves = grace > 45
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("signal", 14, {"signal": "SIGTERM"}, attempt=A1, rank=0)
    over = 59 if saves else 44
    history.phase("checkpoint_save", 14, over if saves else None)
    if saves:
        saved = {"checkpoint": "file:///c/10", "cursor": 10}
        history.add(
            "checkpoint_saved", 59, {**saved, "blocking_ns": 45 * 10**9}, attempt=A1, rank=0
        )
        history.add("checkpoint_committed", 59, saved, attempt=A1, rank=0)
        history.session_ended(59, "preempted")
    history.add("process_ended", over, {"signal": 9}, attempt=A1, rank=0)
    history.ended(60, "preempted").submit(60, 2, "relaunch").state(62, 2, allocated=61)
    history.session(62, 63, A2, hwm=10)
    if saves:
        resumed = {"checkpoint": "file:///c/10", "cursor": 10, "hwm": 10}
        history.add("resumed", 64, resumed, attempt=A2, rank=0).train(64, 74, (10, 20), A2)
    else:
        history.steps(64, 74, (0, 10), A2, steps=10).train(74, 84, (10, 20), A2)
    end = 74 if saves else 84
    history.session_ended(end, attempt=A2).ended(end, None, A2)
    now = told(history.job_ended(end).measure())
    assert now["utt"] == utt
    assert now["causes"] == {"preempted": 1}
    assert now["attempts"][0].get("checkpoint_save", 0) == (45 if saves else 0)
    assert now["attempts"][0]["failure_detection"] == (1 if saves else 46)
    assert now["ttr"] == [(50 if saves else 60, True)]


@pytest.mark.parametrize("cause", [None, "vanished"])
def test_s06_r15_a_finished_job_has_no_status(history, told, cause: str | None) -> None:
    """https://github.com/meta-pytorch/torchx/pull/1070: the scheduler forgets what has finished.

    The trainer's own end decides, a minute of grace later, or nothing does and it has vanished. The
    clock stops at the last sign of life either way: waiting for a verdict is not the job's time.
    """
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 24, (0, 20))
    if cause is None:
        history.session_ended(24)
    history.ended(85, cause).job_ended(85, "failed" if cause else "succeeded", cause)
    now = told(history.measure())
    assert (now["wall"], now["held"]) == (24, 23)
    assert now["levels"] == {"start": 4, "effective": 20}
    assert now["layers"] == ({"none": 1} if cause else {})
    assert now["ttr"] == ([(0, False)] if cause else [])
    assert now["quality"] == ["complete"]


def test_r38_a_compile_cache_is_not_used_without_a_word(history, in_seconds) -> None:
    """https://github.com/pytorch/pytorch/issues/144859: start-up stays slow, and nobody says why.

    Each attempt's compile phase stands beside what the caches gave, and a recompilation's reason.
    """
    history.open("local").submit(0).session(0, 0).phase("compile", 0, 90)
    cold = {"id": "0/0", "duration_ns": 90 * 10**9, "hits": 0, "misses": 12, "reason": None}
    history.add("compile", 90, cold, attempt=A1, rank=0).train(90, 100, (0, 10))
    history.ended(100, "preempted").submit(100, 2, "relaunch").session(100, 100, A2, hwm=10)
    history.phase("compile", 100, 108, A2)
    warm = {"id": "0/0", "duration_ns": 8 * 10**9, "hits": 12, "misses": 0, "reason": "shape"}
    history.add("compile", 108, warm, attempt=A2, rank=0).train(108, 118, (10, 20), A2)
    metric = history.measure()
    found = [
        (in_seconds(attempt.phases_ns)["compile"], row.hits, row.misses, row.reason)
        for attempt, row in zip(metric.attempts, metric.compiles, strict=True)
    ]
    assert found == [(90, 0, 12, None), (8, 12, 0, "shape")]
