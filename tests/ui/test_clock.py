"""Times in the chosen zone, said so; in UTC where the zone is none."""

from datetime import UTC, datetime
from zoneinfo import available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.ui.clock import clock_of

NOON = 1_796_040_964_123_456_789  # 2026-11-30 12:16:04 UTC
SUMMER = 1_785_500_000_000_000_000
DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    ("asked", "name", "instant"),
    [
        ("", "UTC", "2026-11-30 12:16:04 UTC"),
        ("UTC", "UTC", "2026-11-30 12:16:04 UTC"),
        ("Europe/Berlin", "Europe/Berlin", "2026-11-30 13:16:04 CET"),
        ("Europe%2FBerlin", "Europe/Berlin", "2026-11-30 13:16:04 CET"),
        ("Asia/Kolkata", "Asia/Kolkata", "2026-11-30 17:46:04 IST"),
        ("America/St_Johns", "America/St_Johns", "2026-11-30 08:46:04 NST"),
        ("Mars/Olympus", "UTC", "2026-11-30 12:16:04 UTC"),
        ("../../etc/passwd", "UTC", "2026-11-30 12:16:04 UTC"),
        ("/etc/localtime", "UTC", "2026-11-30 12:16:04 UTC"),
        ("a\0b", "UTC", "2026-11-30 12:16:04 UTC"),
        ("Europe", "UTC", "2026-11-30 12:16:04 UTC"),
        ("x" * 5000, "UTC", "2026-11-30 12:16:04 UTC"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_time_in_full(asked: str, name: str, instant: str) -> None:
    clock = clock_of(asked)
    assert (clock.name, clock.instant(NOON)) == (name, instant)
    assert clock.second(NOON) == instant[11:]


@pytest.mark.parametrize("asked", ["Mars/Olympus", "%22%3E%3Cscript%3E"])
def test_what_was_asked_for_is_told_back(asked: str) -> None:
    assert clock_of(asked).asked in ("Mars/Olympus", '"><script>')


def test_brief_times_name_the_day_where_it_is_another() -> None:
    clock = clock_of("Europe/Berlin")
    assert clock.brief(NOON, NOON - DAY // 2) == "13:16:04"
    assert clock.brief(NOON, NOON + DAY // 2) == "Nov 30 13:16"
    assert clock.brief(None, NOON) == clock.instant(None) == "–"
    assert clock.day(NOON + DAY) == "Dec 1"


def test_an_axis_is_local_without_a_zone() -> None:
    assert clock_of("Asia/Kolkata").axis(NOON) == "2026-11-30 17:46:04.123"
    assert clock_of("Europe/Berlin").instant(SUMMER).endswith("CEST")


# Reading a zone for the first time takes as long as the disk does.
@settings(deadline=None)
@given(
    ns=st.integers(min_value=0, max_value=4 * 10**18),
    zone=st.sampled_from(sorted(available_timezones() - {"localtime"})),
)
def test_every_zone_tells_the_same_moment(ns: int, zone: str) -> None:
    moment = clock_of(zone).moment(ns)
    assert moment == datetime.fromtimestamp(ns // 10**9, UTC).replace(
        microsecond=ns % 10**9 // 1000
    )
    assert moment.utcoffset() is not None
