"""Times as a page shows them, in one time zone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from airflow_ett.metric.format import UNKNOWN

_SECOND = 1_000_000_000
_FIRST, _LAST = date(1971, 1, 1), date(2261, 12, 31)
"""Days whose nanoseconds a column holds."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Shows instants (UTC nanoseconds) in ``zone``; ``asked`` is the zone that the page asked for.

    ``asked`` stands in the page, so that its script asks for another one only once.
    """

    zone: tzinfo = UTC
    asked: str = "UTC"

    @property
    def name(self) -> str:
        """The zone's name, such as ``UTC`` or ``Europe/Berlin``."""
        return str(self.zone)

    def moment(self, ns: int) -> datetime:
        """Return the instant, down to microseconds."""
        moment = datetime.fromtimestamp(ns // _SECOND, self.zone)
        return moment.replace(microsecond=ns % _SECOND // 1000)

    def instant(self, ns: int | None) -> str:
        """Return a time in full, such as ``2026-11-29 11:36:04 UTC``."""
        return UNKNOWN if ns is None else f"{self.moment(ns):%Y-%m-%d %H:%M:%S %Z}"

    def second(self, ns: int) -> str:
        """Return the time of day, such as ``11:36:04 UTC``."""
        return f"{self.moment(ns):%H:%M:%S %Z}"

    def brief(self, ns: int | None, beside_ns: int) -> str:
        """Return ``11:36:04`` on the day of ``beside_ns``, else ``Nov 29 11:36``."""
        if ns is None:
            return UNKNOWN
        moment = self.moment(ns)
        if moment.date() == self.moment(beside_ns).date():
            return f"{moment:%H:%M:%S}"
        return f"{moment:%b} {moment.day} {moment:%H:%M}"

    def day(self, ns: int) -> str:
        """Return the day, such as ``Nov 29``."""
        moment = self.moment(ns)
        return f"{moment:%b} {moment.day}"

    def axis(self, ns: int) -> str:
        """Return the time as a chart's axis takes it: local, to the millisecond, without a zone."""
        return f"{self.moment(ns):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def iso_day(text: str) -> date | None:
    """Return the day of an address, ISO 8601; None where it is none or out of reach."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if _FIRST <= day <= _LAST else None


def clock_of(asked: str) -> Clock:
    """Return the clock of an IANA zone, percent-encoded or not; UTC where there is none."""
    name = unquote(asked) or "UTC"
    if name == "UTC":
        return Clock()
    try:
        return Clock(ZoneInfo(name), name)
    except (KeyError, OSError, ValueError):
        return Clock(UTC, name)
