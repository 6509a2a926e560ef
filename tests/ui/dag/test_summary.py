"""Sums over jobs: weighting, unknowns, the period before."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.dag.components import component_rows
from airflow_ett.ui.dag.summary import quantiles, summarise
from airflow_ett.ui.data import COMPONENT_LABELS, jobs_of, weights

Make = Callable[..., dict[str, Any]]
SECOND = 10**9


def test_weights_by_accelerator_time(report: Make) -> None:
    small = report(run_id="a", job="a", accelerators=8)
    large = report(
        run_id="b",
        job="b",
        accelerators=24,
        effective_ns=600 * SECOND,
        ett_pct=60.0,
        held_ns=10**12,
    )
    large["components_ns"] = {**large["components_ns"], "effective": 600 * SECOND}
    now = summarise(jobs_of([small, large]), accelerated=True)
    assert now.ett_pct == pytest.approx((84 * 8 + 60 * 24) / 32)
    assert now.per_job_pct == pytest.approx(72.0)
    assert now.lost == (960 - 840) * SECOND * 8 + (1000 - 600) * SECOND * 24


def test_without_accelerators_weights_by_wall_clock(report: Make) -> None:
    jobs = jobs_of([report(job="a", accelerators=0), report(job="b", accelerators=0)])
    assert weights(jobs) is None
    assert summarise(jobs, accelerated=False).ett_pct == pytest.approx(84.0)


def test_jobs_without_ett_count_failures_but_no_share(report: Make, silent: Make) -> None:
    jobs = jobs_of([report(job="a"), silent(job="b", nof=3, nof_by_cause={"launch": 3})])
    now = summarise(jobs, accelerated=True)
    assert now.ett_pct == pytest.approx(84.0)
    assert now.failures_per_job == 2.0
    assert now.failures_without_preemptions == 1.5
    assert (now.jobs, now.measured) == (2, 1)
    assert jobs[1].tts_ns is None
    assert jobs[1].lost_ns is None


def test_nothing_measured_is_unknown_not_zero(silent: Make) -> None:
    jobs = jobs_of([silent()])
    now = summarise(jobs, accelerated=True)
    assert (now.ett_pct, now.held_pct, now.paper_pct, now.tts, now.ttr) == (None,) * 5
    rows = component_rows(jobs, now, None)
    assert {row.share_pct for row in rows} == {None}
    assert {row.mean_ns for row in rows} == {None}


def test_a_users_restart_is_no_recovery_from_failure(report: Make) -> None:
    ttr = [
        {"ns": 10, "recovered": True, "cause": "user_restart"},
        {"ns": 90, "recovered": False, "cause": "application"},
        {"ns": 30, "recovered": True, "cause": "preempted"},
    ]
    now = summarise(jobs_of([report(ttr=ttr)]), accelerated=True)
    assert now.ttr is not None
    assert (now.ttr.p50, now.ttr.p90) == (30, 30)
    assert now.unrecovered == 1


def test_a_live_job_is_recovering_not_lost(report: Make) -> None:
    ttr = [{"ns": 90, "recovered": False, "cause": "application"}] * 2
    live = report(ttr=ttr, state="running", frozen=False)
    now = summarise(jobs_of([live]), accelerated=True)
    assert (now.unrecovered, now.recovering) == (1, 1)
    over = summarise(jobs_of([report(ttr=ttr, state="failed")]), accelerated=True)
    assert (over.unrecovered, over.recovering) == (2, 0)


def test_change_is_judged_by_meaning(report: Make) -> None:
    worse = {**report()["components_ns"], "effective": 800 * SECOND, "wasted": 80 * SECOND}
    before_jobs = jobs_of([report(components_ns=worse, effective_ns=800 * SECOND)])
    jobs = jobs_of([report()])
    now, before = (summarise(part, accelerated=True) for part in (jobs, before_jobs))
    rows = {row.name: row for row in component_rows(jobs, now, before)}
    assert list(rows) == list(COMPONENT_LABELS)
    assert rows["effective"].change == pytest.approx(4.0)
    assert rows["wasted"].change == pytest.approx(-4.0)
    assert rows["effective"].good
    assert rows["wasted"].good
    assert rows["shutdown"].good is None


def test_labels_tell_jobs_of_one_run_apart(report: Make) -> None:
    jobs = jobs_of(
        [
            report(job="a", begin_ns=1, run_id="r"),
            report(job="b", begin_ns=2, run_id="r", map_index=3),
            report(job="c", begin_ns=3, run_id="r", generation=2),
            report(job="d", begin_ns=0, run_id="s"),
        ]
    )
    assert [job.label for job in jobs] == ["s", "r · train", "r · train[3]", "r · train g2"]


def test_on_the_held_clock_only_held_time_counts(report: Make) -> None:
    jobs = jobs_of([report()])
    now = summarise(jobs, accelerated=True, held=True)
    assert (now.clock_pct, now.per_job_pct) == (87.5, 87.5)
    assert now.ett_pct == pytest.approx(84.0)
    assert sum(now.parts.values()) == now.held == 960 * SECOND * 8
    assert now.share_pct("scheduling") == pytest.approx(100 * 15 / 960)
    rows = {row.name: row for row in component_rows(jobs, now, None, held=True)}
    assert rows["scheduling"].mean_ns == 15 * SECOND
    assert rows["scheduling"].history == (100 * 15 / 960,)


@pytest.mark.parametrize("held", [False, True])
def test_lost_time_is_held_time_and_adds_up(report: Make, held: bool) -> None:
    jobs = jobs_of([report(job="a"), report(job="b", accelerators=2)])
    now = summarise(jobs, accelerated=True, held=held)
    rows = {row.name: row.lost for row in component_rows(jobs, now, None, held=held)}
    assert rows.pop("effective") is None
    assert rows["wasted"] == 35 * SECOND * 10
    assert sum(lost for lost in rows.values() if lost is not None) == now.lost


def test_the_largest_loss_is_no_training(report: Make, silent: Make) -> None:
    assert summarise(jobs_of([report()]), accelerated=True).largest_loss == "scheduling"
    assert summarise(jobs_of([report()]), accelerated=True, held=True).largest_loss == "wasted"
    assert summarise(jobs_of([silent()]), accelerated=True).largest_loss is None


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=60))
def test_quantiles_lie_within_the_data(values: list[int]) -> None:
    found = quantiles(values)
    assert found is not None
    assert min(values) <= found.p50 <= found.p90 <= max(values)


def test_quantiles_interpolate() -> None:
    found = quantiles([0, 10, 20, 30])
    assert found is not None
    assert (found.p50, found.p90) == (15, 27)
    assert quantiles([]) is None
