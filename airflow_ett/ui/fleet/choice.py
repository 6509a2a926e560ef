"""What the fleet page's address asks for: period, clock, order of the table. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from airflow_ett.store.periods import Period
from airflow_ett.ui.clock import iso_day

PRESETS = {"7days": 7, "30days": 30, "90days": 90}
"""The Period control's choices, as the days up to and including today."""

RANGE = "range"
"""The choice beside the presets: from one day to another."""

ORDERS = {
    **{"lost": "-lost", "dag": "dag", "ett": "ett", "change": "change", "loss": "-loss"},
    **{"failures": "-failures", "tts": "-tts", "running": "-running"},
}
"""The columns that sort the table, and the order that each begins with (``-``: largest first)."""

_DEFAULT = "30days"
_LONGEST = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Choice:
    """A view of the page, and the addresses of those beside it.

    ``held`` tells the clock of ETT%: accelerators held, else from submission. ``order`` is one of
    :data:`ORDERS`' keys, with ``-`` in front where the largest comes first.
    """

    preset: str
    period: Period
    held: bool = False
    order: str = "-lost"
    every: bool = False

    @property
    def days(self) -> list[str]:
        """The period's days, ISO 8601."""
        first = date.fromisoformat(self.period.first)
        length = (date.fromisoformat(self.period.last) - first).days + 1
        return [(first + timedelta(days=number)).isoformat() for number in range(length)]

    @property
    def before(self) -> Period:
        """The period of the same length that ends the day before this one."""
        first = date.fromisoformat(self.period.first)
        last = first - timedelta(days=1)
        begin = first - timedelta(days=len(self.days))
        return Period(begin.isoformat(), last.isoformat(), self.period.zone)

    @property
    def api_query(self) -> str:
        """The period as the REST API is asked for it."""
        return urlencode({"days": len(self.days), "until": self.period.last})

    def href(self, **changes: Any) -> str:
        """Return the address of this view with some fields changed, relative to the page."""
        return replace(self, **changes)._address()

    def ending(self, day: str) -> str:
        """Return the address of the days up to this one, as many as the default has."""
        last = date.fromisoformat(day)
        first = last - timedelta(days=PRESETS[_DEFAULT] - 1)
        return self.href(preset=RANGE, period=Period(f"{first}", f"{last}", self.period.zone))

    def sorted_by(self, column: str) -> str:
        """Return the address that sorts by a column, the other way round if this one does."""
        first = ORDERS[column]
        other = column if first.startswith("-") else f"-{column}"
        return self.href(order=other if self.order == first else first)

    def direction(self, column: str) -> str:
        """Return how a column is sorted, as ``aria-sort`` says it."""
        if self.order.removeprefix("-") != column:
            return "none"
        return "descending" if self.order.startswith("-") else "ascending"

    def _address(self) -> str:
        asked = {"period": self.preset}
        if self.preset == RANGE:
            asked |= {"since": self.period.first, "until": self.period.last}
        if self.held:
            asked["clock"] = "held"
        if self.order != "-lost":
            asked["sort"] = self.order
        if self.every:
            asked["rows"] = "all"
        return f"?{urlencode(asked)}"


def choice_of(
    *,
    period: str,
    since: str,
    until: str,
    clock: str,
    sort: str,
    rows: str,
    today: date,
    zone: ZoneInfo,
) -> Choice:
    """Return the view that a query asks for; what it does not tell, or wrongly, is the default.

    A range ends today at the latest and is a year long at most.
    """
    span = None if period in PRESETS else _range(since, until, today, asked=period == RANGE)
    preset = RANGE if span else period if period in PRESETS else _DEFAULT
    first, last = span or (today - timedelta(days=PRESETS[preset] - 1), today)
    return Choice(
        preset=preset,
        period=Period(first.isoformat(), last.isoformat(), zone),
        held=clock == "held",
        order=sort if sort.removeprefix("-") in ORDERS else ORDERS["lost"],
        every=rows == "all",
    )


def _range(since: str, until: str, today: date, *, asked: bool) -> tuple[date, date] | None:
    """Return the first and the last day; None where none is asked for."""
    first, last = iso_day(since), iso_day(until)
    if not (first or last or asked):
        return None
    last = min(last or today, today)
    first = min(first or last - timedelta(days=PRESETS[_DEFAULT] - 1), today)
    first, last = min(first, last), max(first, last)
    return max(first, last - _LONGEST), last
