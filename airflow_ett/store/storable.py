"""What the database takes. Anybody may write a log, and JSON holds more than a column does."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Table

from airflow_ett.events import Event

LONGEST = "longest"
"""The key in a column's ``info`` under which the length stands at which its texts are cut."""

NAME_LENGTH = 250
"""Characters of a name: as Airflow's own. Longer keys do not fit into an index of Postgres."""

_MOST = 2**63 - 1
_DEEPEST = 40
_NESTS = (dict, list)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def refusal(event: Event) -> str | None:
    """Return what is wrong with an event that no database can take, None if nothing is."""
    for name in ("job", "writer"):
        if len(getattr(event, name)) > NAME_LENGTH:
            return f"{name} has more than {NAME_LENGTH} characters"
    if not (_is_flat(event.data) and _is_flat(event.extra)):
        return f"it is nested more than {_DEEPEST} deep"
    return None


def row_of(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values that the table has a column for, each made one that its column takes.

    A text loses the characters that no database stores. A value of another type or beyond 64 bits
    is unknown (None) or, where the column needs one, the nearest.
    """
    columns = {column.name: column for column in table.c}
    return {n: _fitted(columns[n], value) for n, value in values.items() if n in columns}


def whole(value: object) -> int | None:
    """Return the value if it is a whole number of 64 bits, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and -_MOST <= value <= _MOST:
        return value
    return None


def _fitted(column: Column[Any], value: Any) -> Any:
    if isinstance(column.type, JSON):
        return value
    if isinstance(column.type, Boolean):
        return value is True
    if isinstance(column.type, BigInteger):
        return whole(value) if column.nullable else _nearest(value)
    if isinstance(column.type, Float):
        return value if isinstance(value, int | float) and math.isfinite(value) else None
    if isinstance(value, str):
        return _UNSTORABLE.sub("", value)[: column.info.get(LONGEST)]
    return None if column.nullable else ""


def _nearest(value: Any) -> int:
    return max(-_MOST, min(value, _MOST)) if isinstance(value, int) else 0


def _is_flat(value: Any, depth: int = _DEEPEST) -> bool:
    parts = value if isinstance(value, list) else value.values()
    # Nearly all events hold plain values alone.
    nested = [part for part in parts if isinstance(part, _NESTS)]
    return depth > 0 and all(_is_flat(part, depth - 1) for part in nested)
