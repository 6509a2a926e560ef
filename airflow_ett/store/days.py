"""The rollup's days: which one an instant belongs to, and when it begins and ends."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

_SECOND = 1_000_000_000


def day_of(instant_ns: int, zone: ZoneInfo) -> str:
    """Return the day (ISO 8601) of an instant in UTC nanoseconds."""
    moment = datetime.fromtimestamp(instant_ns // _SECOND, UTC)
    return moment.astimezone(zone).date().isoformat()


def bounds(day: str, zone: ZoneInfo) -> tuple[int, int]:
    """Return the day's first and last instant, in UTC nanoseconds, as far as a column holds."""
    first = date.fromisoformat(day)
    begin, end = (
        int(datetime.combine(d, time(), zone).timestamp()) * _SECOND
        for d in (first, first + timedelta(days=1))
    )
    return begin, min(end - 1, 2**63 - 1)
