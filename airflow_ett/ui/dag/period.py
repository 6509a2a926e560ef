"""Which jobs a page is about: the Period control. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple

from airflow_ett.ui.clock import Clock, iso_day

MOST = 1_000
"""Jobs that a page counts; of a longer period the newest ones."""

_DAY = timedelta(days=1)
_DAY_NS = 86_400 * 10**9
_DEFAULT_DAYS = 30


class Span(NamedTuple):
    """Times that bound a period; None where nothing does. ``before_ns`` begins the one before."""

    before_ns: int | None
    begin_ns: int | None
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class Period:
    """A choice of the Period control: the newest ``runs``, the last ``days``, or days by date.

    ``since`` and ``until`` are both included; None is open.
    """

    key: str
    label: str
    runs: int | None = None
    days: int | None = None
    since: date | None = None
    until: date | None = None

    def span(self, now_ns: int, clock: Clock) -> Span:
        """Return its bounds; days begin at midnight on the page's clock."""
        if self.runs:
            return Span(None, None, None)
        if self.days:
            length = self.days * _DAY_NS
            return Span(now_ns - 2 * length, now_ns - length, None)
        end = _midnight(self.until + _DAY, clock) if self.until else None
        if self.since is None:
            return Span(None, None, end)
        begin = _midnight(self.since, clock)
        return Span(begin - max(0, (end or now_ns) - begin), begin, end)

    def count(self, rows: Sequence[Mapping[str, Any]], span: Span) -> int:
        """Return how many of the jobs, newest first, belong to this period; the rest lie before.

        Runs are told apart by their newest job: what an older run begins later counts, and what one
        of the newest runs began before it doesn't.
        """
        if self.runs:
            return newest([row["run_id"] for row in rows], self.runs)
        if span.begin_ns is None:
            return len(rows)
        return sum(row["begin_ns"] >= span.begin_ns for row in rows)


PERIODS = (
    Period("30runs", "Last 30 runs", runs=30),
    Period("7days", "Last 7 days", days=7),
    Period("30days", "Last 30 days", days=30),
    Period("90days", "Last 90 days", days=90),
)
"""The Period control's choices beside :data:`CUSTOM`; the first is the default."""

CUSTOM = Period("custom", "Custom range")
"""Days of one's own choice."""


def period_of(key: str, since: str, until: str, *, now_ns: int, clock: Clock) -> Period:
    """Return the period of an address; the default for what is none, so that a link still opens.

    Dates are ISO days, either of them may be missing, and their order is without meaning.
    """
    first, last = iso_day(since), iso_day(until)
    if key == CUSTOM.key or (not key and (first or last)):
        if first and last:
            first, last = min(first, last), max(first, last)
        elif not first and not last:
            last = clock.moment(now_ns).date()
            first = last - (_DEFAULT_DAYS - 1) * _DAY
        return Period(CUSTOM.key, CUSTOM.label, since=first, until=last)
    return next((period for period in PERIODS if period.key == key), PERIODS[0])


def newest(run_ids: Sequence[str], runs: int) -> int:
    """Return how many jobs, given by their runs' ids newest first, belong to so many runs."""
    seen: set[str] = set()
    for count, run_id in enumerate(run_ids):
        seen.add(run_id)
        if len(seen) > runs:
            return count
    return len(run_ids)


def _midnight(day: date, clock: Clock) -> int:
    return int(datetime.combine(day, time(), clock.zone).timestamp()) * 10**9
