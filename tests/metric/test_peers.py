"""Timelines from the tests of Google's ml-goodput-measurement 0.2.3, and a probe of our own.

The peer's number stands beside ours wherever they differ, with the reason.
"""

from __future__ import annotations

import pytest


def steps(history, times: list[float], end: float, first: int, attempt=(1, 0, 0)) -> None:
    """One sample a step; a step lasts until the next one begins."""
    for at, (begin, until) in enumerate(zip(times, [*times[1:], end], strict=True)):
        history.steps(begin, until, (first + at, first + at + 1), attempt)


def test_plain(history) -> None:
    """gp01: five steps of 3 s after 5 s of start-up in 20 s. Peer 75.0, ours 75.0."""
    history.open("local").submit(0).session(0, 0)
    steps(history, [5, 8, 11, 14, 17], 20, 0)
    metric = history.session_ended(20).ended(20, None).job_ended(20).measure()
    assert metric.ett_pct == 75.0


@pytest.mark.parametrize(("told", "ours"), [(False, 80.0), (True, 60.0)])
def test_a_slow_first_step(history, told: bool, ours: float) -> None:
    """gp02: the first step takes 5 s more. Peer 60.0: it guesses start-up from the excess.

    Ours books a step's time to the step unless something says that it was not: 80.0, and 60.0 when
    the compilation is told.
    """
    history.open("local").submit(0).session(0, 0)
    steps(history, [5, 13, 16, 19, 22], 25, 0)
    if told:
        history.phase("compile", 6, 11)
    metric = history.session_ended(25).ended(25, None).job_ended(25).measure()
    assert metric.ett_pct == ours


def test_a_restart_that_repeats(history, in_seconds) -> None:
    """gp05: dies at 25, restarts at 30 from step 2. Peer 30.6, one disruption; ours 40.8, one.

    The peer takes 5 s off each first step, counts the repeated steps as good and the first time
    through them as wasted (without the last one, whose end it cannot see: 6 s). Ours keeps what
    trained on new data, 20 s, and books the second time, 14 s, as replay.
    """
    history.open("local").submit(0).session(0, 0).phase("device_init", 0, 1)
    history.phase("pre_train", 1, 3).phase("first_batch", 3, 5)
    steps(history, [5, 13, 16, 19, 22], 25, 0)
    history.submit(30, 2, "airflow", 2).session(30, 30, (2, 0, 0), hwm=5)
    steps(history, [35, 43, 46], 49, 2, (2, 0, 0))
    history.session_ended(49, attempt=(2, 0, 0)).ended(49, None, (2, 0, 0))
    metric = history.job_ended(49).measure()
    assert metric.ett_pct == pytest.approx(100 * 20 / 49)
    assert metric.nof == 1
    assert in_seconds(metric.phases_ns) == {
        "device_init": 1,
        "pre_train": 2,
        "first_batch": 2,
        "train": 20,
        "failure_detection": 5,
        "trainer_init": 5,
        "replay": 14,
    }


def test_evaluation_between_steps(history, in_seconds) -> None:
    """gp08: 5 s of evaluation between two steps. Peer 73.2, ours 73.2."""
    history.open("local").submit(0).session(0, 0).phase("device_init", 0, 1)
    steps(history, [6, 9, 12, 15, 18], 21, 0)
    history.phase("evaluation", 21, 26)
    steps(history, [26, 29, 32, 35, 38], 41, 5)
    metric = history.session_ended(41).ended(41, None).job_ended(41).measure()
    assert metric.ett_pct == pytest.approx(73.1707, abs=1e-4)
    assert in_seconds(metric.phases_ns)["evaluation"] == 5
    assert in_seconds(metric.levels_ns)["steady"] == 5


@pytest.mark.parametrize("told", [True, False])
def test_an_outage_with_a_clean_resume(history, told: bool) -> None:
    """100 s away, resumed at the very next step. Peer 96.4 and no disruption; ours 21.4 and one."""
    history.open("local").submit(0).session(0, 0)
    steps(history, [5, 8, 11, 14, 17], 20, 0)
    if told:
        history.ended(22, "infrastructure")
    history.submit(120, 2, "relaunch").session(120, 120, (2, 0, 0), hwm=5)
    steps(history, [125, 128, 131, 134, 137], 140, 5, (2, 0, 0))
    history.session_ended(140, attempt=(2, 0, 0)).ended(140, None, (2, 0, 0))
    metric = history.job_ended(140).measure()
    assert round(metric.ett_pct, 1) == 21.4
    assert metric.effective_ns == 30 * 10**9
    assert metric.nof_by_cause == ({"infrastructure": 1} if told else {"unknown": 1})
    assert [r.ns // 10**9 for r in metric.ttr] == [105]
