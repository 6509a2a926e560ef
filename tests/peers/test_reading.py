"""The peers' times, lengths and numbers."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.peers.reading import duration, moment, read_entries, whole

NONSENSE = [None, True, "", "noon", float("nan"), float("inf"), -1, [], {}, 1e300, 1e308, 10**401]


@given(st.integers(0, 7_000_000_000_000_000))
def test_both_ways_to_write_a_time_are_exact_to_the_microsecond(microseconds: int) -> None:
    instant = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
    assert moment(instant.timestamp()) == microseconds * 1000
    assert moment(instant.isoformat()) == microseconds * 1000
    assert moment(instant.replace(tzinfo=None).isoformat()) == microseconds * 1000


def test_a_time_without_a_zone_is_utc_wherever_it_is_read(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert moment("1970-01-01T00:00:01") == 10**9
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_zone_counts() -> None:
    assert moment("1970-01-01T02:00:00+02:00") == 0
    assert moment("1970-01-01T00:00:01Z") == 10**9


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value)[:9])
def test_nonsense_is_none(value: object) -> None:
    assert moment(value) is None
    assert duration(value) is None
    assert whole(value) is None


def test_whole_numbers() -> None:
    assert [whole(value) for value in (0, 40.0, 40.5, "4")] == [0, 40, None, None]
    assert duration(2.5) == 2_500_000_000


def test_lines_may_be_bytes_and_empty() -> None:
    assert [entry.fields for entry in read_entries([b"\n", b'{"a":1}\n', '{"b":2}'])] == [
        {"a": 1},
        {"b": 2},
    ]
