"""How numbers are shown to people: durations, percents, changes, cursors, times.

Pure functions from exact integers to text, used by the CLI and the pages alike. Rounding is for
show only. Unknown (None) is always ``–``, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

UNKNOWN = "–"
MINUS = "\u2212"
_SPACE = "\u00a0"
_MILLISECOND = 1_000_000
_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND


def duration(ns: int | None) -> str:
    """Return a length in at most two units, such as ``420 ms``, ``18.4 s`` or ``14 m 20 s``.

    A unit is chosen after rounding, so that 59.97 s is ``1 m 00 s``.
    """
    if ns is None:
        return UNKNOWN
    if ns < 0:
        return MINUS + duration(-ns)
    if ns == 0:
        return _pair(0, "s")
    if ns < _MILLISECOND // 2:
        return "<" + _pair(1, "ms")
    if (milliseconds := _round(ns, _MILLISECOND)) < 1000:
        return _pair(milliseconds, "ms")
    if (tenths := _round(ns, _SECOND // 10)) < 600:
        return f"{tenths // 10}.{tenths % 10}{_SPACE}s"
    if (seconds := _round(ns, _SECOND)) < 3600:
        return _pair(seconds // 60, "m") + _SPACE + _pair(f"{seconds % 60:02d}", "s")
    if (minutes := _round(ns, 60 * _SECOND)) < 48 * 60:
        return _pair(minutes // 60, "h") + _SPACE + _pair(f"{minutes % 60:02d}", "m")
    hours = _round(ns, _HOUR)
    return _pair(hours // 24, "d") + _SPACE + _pair(hours % 24, "h")


def percent(value: float | None) -> str:
    """Return ``value`` (0 to 100) with one decimal, such as ``84.0%``."""
    return UNKNOWN if value is None else f"{value:.1f}%".replace("-", MINUS)


def change(points: float | None) -> str:
    """Return a difference of two percents, signed, such as ``+2.3``; ``±0.0`` below 0.05."""
    if points is None:
        return UNKNOWN
    if abs(points) < 0.05:
        return "±0.0"
    return f"{'+' if points > 0 else MINUS}{abs(points):.1f}"


def shares(parts: Sequence[int]) -> list[str]:
    """Return each part's share of the sum as a percent; rounded by largest remainder.

    The texts add up to exactly 100.0%. All are unknown where the sum is 0.
    """
    if sum(parts) <= 0:
        return [UNKNOWN] * len(parts)
    return [f"{share // 10}.{share % 10}%" for share in apportion(parts, 1000)]


def apportion(parts: Sequence[int], units: int) -> list[int]:
    """Return how many of ``units`` fall to each part, by largest remainder: they add up exactly.

    Parts are not negative and not all 0.
    """
    whole = sum(parts)
    counts = [units * part // whole for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: -(units * parts[i] % whole))
    for i in by_remainder[: units - sum(counts)]:
        counts[i] += 1
    return counts


def accelerator_hours(accelerator_ns: int | None) -> str:
    """Return accelerator-nanoseconds as hours: one decimal below 10, else whole with commas."""
    if accelerator_ns is None:
        return UNKNOWN
    hours = accelerator_ns / _HOUR
    text = f"{hours:.1f}" if abs(round(hours, 1)) < 10 else f"{hours:,.0f}"
    return text.replace("-", MINUS)


def counted(count: int, noun: str) -> str:
    """Return such as ``1 attempt`` or ``1,200 attempts``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def cursor(samples: int | None) -> str:
    """Return a position in the data scaled to k, M or G, such as ``789.7 M``."""
    if samples is None:
        return UNKNOWN
    for factor, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(samples) >= factor:
            return f"{samples / factor:.1f}{_SPACE}{unit}"
    return str(samples)


def instant(ns: int | None) -> str:
    """Return a time in full, such as ``2026-11-29 11:36:04 UTC``."""
    if ns is None:
        return UNKNOWN
    return datetime.fromtimestamp(ns // _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _pair(value: int | str, unit: str) -> str:
    return f"{value}{_SPACE}{unit}"


def _round(ns: int, unit: int) -> int:
    return (ns + unit // 2) // unit
