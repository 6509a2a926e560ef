"""Periods: what an address asks for, and which jobs belong to it."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.clock import Clock, clock_of
from airflow_ett.ui.dag.period import PERIODS, Period, newest, period_of

S = 10**9
DAY = 86_400 * S
NOW = 1_796_000_000 * S
UTC_CLOCK = Clock()


def _period(key: str = "", since: str = "", until: str = "", clock: Clock = UTC_CLOCK) -> Period:
    return period_of(key, since, until, now_ns=NOW, clock=clock)


def _midnight(day: str, hours: int = 0) -> int:
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(hours=hours)
    return int(moment.timestamp()) * S


def _rows(*jobs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"run_id": run_id, "begin_ns": begin_ns} for run_id, begin_ns in jobs]


@pytest.mark.parametrize(
    ("key", "since", "until"),
    [
        ("fortnight", "", ""),
        ("", "", ""),
        ("", "banana", "2026-13-45"),
        ("CUSTOM", "2026-11-01", ""),
        ("", "0001-01-01", "9999-12-31"),
        ("\0", "\ud800", "2026-11-01\0"),
    ],
)
def test_what_is_no_period_is_the_default(key: str, since: str, until: str) -> None:
    assert _period(key, since, until) == PERIODS[0]


def test_a_period_by_name_has_no_dates() -> None:
    assert _period("7days", "2026-11-01", "2026-11-02") == PERIODS[1]


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2026-11-01", "2026-11-09", (date(2026, 11, 1), date(2026, 11, 9))),
        ("2026-11-09", "2026-11-01", (date(2026, 11, 1), date(2026, 11, 9))),
        ("2026-11-01", "", (date(2026, 11, 1), None)),
        ("x", "2026-11-09", (None, date(2026, 11, 9))),
    ],
)
def test_dates_make_a_range(since: str, until: str, expected: tuple[Any, Any]) -> None:
    for key in ("", "custom"):
        period = _period(key, since, until)
        assert (period.key, period.since, period.until) == ("custom", *expected)


def test_a_range_without_dates_is_the_last_thirty_days() -> None:
    period = _period("custom")
    assert (period.since, period.until) == (date(2026, 11, 1), date(2026, 11, 30))


def test_days_are_those_of_the_pages_clock() -> None:
    tokyo = clock_of("Asia/Tokyo")
    span = _period("", "2026-11-02", "2026-11-03", tokyo).span(NOW, tokyo)
    assert span.begin_ns == _midnight("2026-11-02", -9)
    assert span.end_ns == _midnight("2026-11-04", -9)
    assert span.before_ns == _midnight("2026-10-31", -9)


def test_a_day_may_have_twenty_five_hours() -> None:
    berlin = clock_of("Europe/Berlin")
    span = _period("", "2026-10-25", "2026-10-25", berlin).span(NOW, berlin)
    assert span.begin_ns is not None
    assert span.end_ns is not None
    assert span.end_ns - span.begin_ns == 25 * 3600 * S


def test_an_open_range_ends_now_or_begins_at_the_first_job() -> None:
    open_end = _period("", "2026-11-29", "").span(NOW, UTC_CLOCK)
    begin = _midnight("2026-11-29")
    assert open_end == (begin - (NOW - begin), begin, None)
    assert _period("", "", "2026-11-29").span(NOW, UTC_CLOCK) == (
        None,
        None,
        _midnight("2026-11-30"),
    )
    ahead = _period("", "2027-11-29", "").span(NOW, UTC_CLOCK)
    assert ahead.before_ns == ahead.begin_ns


@given(st.dates(), st.dates())
def test_any_dates_make_a_span_that_the_store_takes(one: date, other: date) -> None:
    span = _period("custom", one.isoformat(), other.isoformat()).span(NOW, UTC_CLOCK)
    known = [ns for ns in span if ns is not None]
    assert known == sorted(known)
    assert all(abs(ns) < 2**63 for ns in known)


def test_the_last_days_and_the_ones_before() -> None:
    assert _period("7days").span(NOW, UTC_CLOCK) == (NOW - 14 * DAY, NOW - 7 * DAY, None)
    assert _period("30runs").span(NOW, UTC_CLOCK) == (None, None, None)


def test_days_are_split_at_the_begin_of_the_period() -> None:
    period = _period("7days")
    rows = _rows(*((f"r{i}", NOW - i * DAY) for i in range(10)))
    assert period.count(rows, period.span(NOW, UTC_CLOCK)) == 8
    everything = _period("", "", "2026-11-29")
    assert everything.count(rows, everything.span(NOW, UTC_CLOCK)) == 10


def test_runs_are_counted_and_not_their_jobs() -> None:
    period = Period("2runs", "", runs=2)
    rows = _rows(("b", 9), ("b", 8), ("a", 7), ("b", 6), ("older", 5), ("a", 4))
    assert period.count(rows, period.span(NOW, UTC_CLOCK)) == 4


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.integers(1, 7))
def test_the_newest_runs_are_no_more_than_asked_for(run_ids: list[str], runs: int) -> None:
    count = newest(run_ids, runs)
    assert len(set(run_ids[:count])) == min(runs, len(set(run_ids)))
    assert count == len(run_ids) or run_ids[count] not in run_ids[:count]
