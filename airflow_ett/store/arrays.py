"""Many rows into Postgres by one statement: each column's values travel as one array.

That is several times as fast as a row at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Connection, Table, TextClause, text

_ENCODER = json.JSONEncoder()
_MOST_CHARACTERS = 2**25
"""What a statement may bring: Postgres takes no value of a gigabyte. A row alone may be longer."""


def insert_arrays(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert the rows, one at least, whose key is not there yet; return how many these were.

    All rows have the same columns: whole numbers, texts and JSON.
    """
    columns = [table.c[name] for name in rows[0]]
    types = (column.type.compile(connection.dialect) for column in columns)
    arrays = (f"CAST(:{c.name} AS {kind}[])" for c, kind in zip(columns, types, strict=True))
    names = ", ".join(f'"{column.name}"' for column in columns)
    statement = text(
        f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({', '.join(arrays)})"
        " ON CONFLICT DO NOTHING"
    )
    return _insert(connection, statement, columns, rows)


def _insert(
    connection: Connection,
    statement: TextClause,
    columns: Sequence[Column[Any]],
    rows: Sequence[Mapping[str, Any]],
) -> int:
    arrays = {column.name: _array(column, (row[column.name] for row in rows)) for column in columns}
    if len(rows) > 1 and sum(map(len, arrays.values())) > _MOST_CHARACTERS:
        half = len(rows) // 2
        halves = (rows[:half], rows[half:])
        return sum(_insert(connection, statement, columns, part) for part in halves)
    return connection.execute(statement, arrays).rowcount


def _array(column: Column[Any], values: Iterable[Any]) -> str:
    """Return values of a column as the text of a Postgres array."""
    if isinstance(column.type, BigInteger):
        return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"
    return "{" + ",".join(_quoted(column, values)) + "}"


def _quoted(column: Column[Any], values: Iterable[Any]) -> Iterator[str]:
    dumps = _dumps if isinstance(column.type, JSON) else None
    for value in values:
        text = dumps(value) if dumps else value
        if text is None:
            yield "NULL"
        else:
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            yield f'"{escaped}"'


def _dumps(value: Any) -> str:
    # What nearly every event has as its extra fields.
    return "{}" if value == {} else _ENCODER.encode(value)
