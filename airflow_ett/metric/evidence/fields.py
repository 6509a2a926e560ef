"""Reading the fields of an event that anybody may have written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_ett.events import Event

Notes = set[str]
"""What is missing or contradictory in the log, in sentences for its reader."""

MOST = 2**63 - 1
FOREVER = 2**63
"""Later than any time that an event can tell."""


def whole(data: Mapping[str, Any], name: str) -> int | None:
    """Return the field if it is a whole number from 0 to 2**63 - 1, else None."""
    value = data.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST:
        return value
    return None


def text(data: Mapping[str, Any], name: str) -> str | None:
    """Return the field if it is a text with something in it, else None."""
    value = data.get(name)
    return value if isinstance(value, str) and value else None


def table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the field if it is an object, else an empty one."""
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def order(event: Event) -> tuple[int, str, int]:
    """Return what events are sorted by: time, then whatever makes the order the same each time."""
    return event.time_ns, event.writer, event.seq
