"""A peer's JSON lines, one by one, with what is wrong told by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeGuard

from airflow_ett.events import Event

_MOST = 2**63 - 1
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in ``line`` (from 1 on) that could not be brought over, or not without doubt."""

    line: int
    text: str


Told = Event | Problem
"""What a reader yields."""


class Entry(NamedTuple):
    """A line's fields."""

    line: int
    fields: dict[str, Any]


def read_entries(lines: Iterable[bytes | str]) -> Iterator[Entry | Problem]:
    """Yield the object in each line, or why there is none; empty lines are skipped.

    An entry as Cloud Logging exports it is taken out of its ``jsonPayload``.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            whole = line[-1:] in (b"\n", "\n")
            yield Problem(number, "not a line of JSON" if whole else "the last line is torn")
            continue
        if isinstance(fields, dict):
            fields = fields.get("jsonPayload", fields)
        if isinstance(fields, dict):
            yield Entry(number, fields)
        else:
            yield Problem(number, "not a JSON object")


def moment(value: object) -> int | None:
    """Return a time of the peers' in ns: POSIX seconds, or ISO 8601 (UTC where it has no zone).

    They know microseconds, and a float of seconds no more than that. None if it is no time.
    """
    if isinstance(value, str):
        try:
            told = datetime.fromisoformat(value)
        except ValueError:
            return None
        value = (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    return duration(value)


def duration(value: object) -> int | None:
    """Return seconds in ns, None if they are no number from 0 on."""
    if not _is_number(value):
        return None
    result = round(value * _MICRO) * 1000
    return result if result <= _MOST else None


def whole(value: object) -> int | None:
    """Return a whole number from 0 on, also of a float such as 40.0; None if it is none."""
    return int(value) if _is_number(value) and value == int(value) else None


def _is_number(value: object) -> TypeGuard[int | float]:
    """From 0 to 2**63 - 1: no NaN, no infinity, and not so large that a float overflows."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
