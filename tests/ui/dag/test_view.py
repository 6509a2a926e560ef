"""Periods: what is read, and what belongs to the period before."""

from collections.abc import Callable
from typing import Any

from airflow_ett.ui.dag.view import PERIODS, dag_view, period_of

Make = Callable[..., dict[str, Any]]
DAY = 86_400 * 10**9
NOW = 1_796_000_000 * 10**9


def _jobs(report: Make, count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        report(job=f"{i:020}", run_id=f"run{i}", begin_ns=NOW - (count - i) * DAY, **changes)
        for i in range(count)
    ]


def test_last_thirty_runs_are_compared_with_the_thirty_before(report: Make) -> None:
    period = period_of("30runs")
    assert (period.since(NOW), period.limit) == (None, 60)
    view = dag_view(_jobs(report, 45), period=period, now_ns=NOW, show_all=False)
    assert view is not None
    assert view.before is not None
    assert (view.now.jobs, view.before.jobs) == (30, 15)
    assert [job.run_id for job in view.shown[:2]] == ["run44", "run43"]
    assert (len(view.shown), view.total) == (12, 30)


def test_days_split_at_the_begin_of_the_period(report: Make) -> None:
    period = period_of("7days")
    assert (period.since(NOW), period.limit) == (NOW - 14 * DAY, None)
    view = dag_view(_jobs(report, 10), period=period, now_ns=NOW, show_all=True)
    assert view is not None
    assert view.before is not None
    assert (view.now.jobs, view.before.jobs) == (7, 3)
    assert len(view.shown) == 7


def test_no_job_in_the_period_is_no_view(report: Make) -> None:
    old = [report(begin_ns=NOW - 8 * DAY)]
    assert dag_view(old, period=period_of("7days"), now_ns=NOW, show_all=False) is None
    assert dag_view([], period=PERIODS[0], now_ns=NOW, show_all=False) is None


def test_nothing_measured_before_is_no_comparison(report: Make, silent: Make) -> None:
    jobs = [silent(job="a", begin_ns=NOW - 8 * DAY), report(job="b", begin_ns=NOW - DAY)]
    view = dag_view(jobs, period=period_of("7days"), now_ns=NOW, show_all=False)
    assert view is not None
    assert view.before is None


def test_an_unknown_period_is_the_default() -> None:
    assert period_of("fortnight") is PERIODS[0]
