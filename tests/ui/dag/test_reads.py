"""Which jobs are read: those of the period and of the one before, and no more than is counted."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from airflow_ett.ui.clock import Clock
from airflow_ett.ui.dag import reads
from airflow_ett.ui.dag.period import PERIODS, Period, period_of
from tests.ui.made_site import Site

Make = Callable[..., dict[str, Any]]
DAY = 86_400 * 10**9
NOW = 1_796_000_000 * 10**9


def _read(site: Site, period: Period, task: str | None = None) -> tuple[list[str], list[str]]:
    span = period.span(NOW, Clock())
    found = reads.jobs(site.store, "ranker", task=task, period=period, span=span)
    assert not found.cut
    return [row["job"] for row in found.within], [row["job"] for row in found.before]


def _keep(site: Site, report: Make, *jobs: tuple[str, str, int], **changes: Any) -> None:
    site.keep(*(report(job=job, run_id=run, begin_ns=begin, **changes) for job, run, begin in jobs))


def test_runs_with_several_jobs_count_once(site: Site, report: Make) -> None:
    jobs = [(f"{i:03}{task}", f"r{i}", NOW - i * DAY + task) for i in range(9) for task in range(5)]
    _keep(site, report, *jobs)
    within, before = _read(site, Period("3runs", "", runs=3))
    assert within == [f"{i:03}{task}" for i in range(3) for task in reversed(range(5))]
    assert before == [f"{i:03}{task}" for i in range(3, 6) for task in reversed(range(5))]
    assert _read(site, Period("99runs", "", runs=99)) == ([*within, *before, *_oldest()], [])


def _oldest() -> list[str]:
    return [f"{i:03}{task}" for i in range(6, 9) for task in reversed(range(5))]


def test_days_have_as_many_before(site: Site, report: Make) -> None:
    _keep(site, report, *((f"{day:02}", f"r{day}", NOW - day * DAY + 1) for day in range(1, 20)))
    within, before = _read(site, PERIODS[1])
    assert within == [f"{day:02}" for day in range(1, 8)]
    assert before == [f"{day:02}" for day in range(8, 15)]


def test_a_range_ends_with_its_last_day(site: Site, report: Make) -> None:
    midnight = NOW // DAY * DAY
    _keep(site, report, *((f"{day:02}", f"r{day}", midnight - day * DAY) for day in range(20)))
    period = period_of("", "2026-11-25", "2026-11-27", now_ns=NOW, clock=Clock())
    assert _read(site, period) == (["03", "04", "05"], ["06", "07", "08"])


def test_one_task_alone(site: Site, report: Make) -> None:
    _keep(site, report, ("a", "r1", 1), ("b", "r2", 2), task_id="train")
    _keep(site, report, ("c", "r1", 3), task_id="eval")
    assert _read(site, PERIODS[0], "train") == (["b", "a"], [])
    assert _read(site, PERIODS[0], "eval") == (["c"], [])
    assert reads.tasks(site.store, "ranker") == ["eval", "train"]


@pytest.mark.parametrize("period", [PERIODS[0], PERIODS[3]], ids=lambda period: period.key)
def test_of_too_many_jobs_the_newest_count(
    site: Site, report: Make, monkeypatch: pytest.MonkeyPatch, period: Period
) -> None:
    monkeypatch.setattr(reads, "MOST", 10)
    _keep(site, report, *((f"{i:03}", f"r{i % 3}", NOW - i) for i in range(70)))
    span = period.span(NOW, Clock())
    found = reads.jobs(site.store, "ranker", task=None, period=period, span=span)
    assert [row["job"] for row in found.within] == [f"{i:03}" for i in range(10)]
    assert (found.before, found.cut) == ([], True)


def test_a_period_before_that_is_not_whole_is_none(
    site: Site, report: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MOST", 10)
    _keep(site, report, *((f"{i:03}", f"r{i}", NOW - 1 - i * DAY) for i in range(7)))
    _keep(site, report, *((f"b{i:03}", f"s{i}", NOW - 8 * DAY - i) for i in range(30)))
    span = PERIODS[1].span(NOW, Clock())
    found = reads.jobs(site.store, "ranker", task=None, period=PERIODS[1], span=span)
    assert (len(found.within), found.before, found.cut) == (7, [], False)


def test_the_period_before_is_read_for_its_sums_alone(site: Site, report: Make) -> None:
    _keep(site, report, *((f"{i}", f"r{i}", i) for i in range(2)))
    period = Period("1run", "", runs=1)
    found = reads.jobs(
        site.store, "ranker", task=None, period=period, span=period.span(NOW, Clock())
    )
    assert "phases_ns" in found.within[0]
    assert "phases_ns" not in found.before[0]
    assert "ttr" in found.before[0]
