"""Whether the tables are those that their revision makes: compared, explained, never repaired.

What a revision makes is known from the migrations themselves, so nothing here repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    inspect,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.types import TypeEngine

from airflow_ett.errors import StoreDamaged
from airflow_ett.store.engine import Store
from airflow_ett.store.revision import START_OVER, VERSION_TABLE, own_tables
from airflow_ett.store.tables import metadata

_FAMILIES = (JSON, Boolean, LargeBinary, Integer, Float, String)
_Named = Mapping[str, Any]


class _Layout(NamedTuple):
    """What is there, by table: columns by name, the key's columns, indexes' columns by name, the
    names of what else must be unique.
    """

    columns: _Named
    keys: _Named
    indexes: _Named
    unique: _Named


def examine(store: Store) -> list[str]:
    """Compare all tables with what this version needs; return what is odd and harms nothing.

    Raises :class:`StoreMismatch` and :class:`StoreDamaged`, which tell what was found, what is
    needed and what to do, and :class:`StoreError` when the database does not answer.
    """
    store.check()
    with store.read() as connection:
        layout = _layout(connection)
        sqlite = connection.dialect.name == "sqlite"
    _demand(layout, metadata, f"The ETT database {store.address}", sqlite=sqlite)
    return list(_oddities(layout))


def demand(connection: Connection, wanted: MetaData, where: str) -> None:
    """Raise :class:`StoreDamaged` unless the tables are the ``wanted`` ones.

    What only a later revision makes must not be there yet: it would be made once more.
    """
    _demand(_layout(connection), wanted, where, sqlite=connection.dialect.name == "sqlite")


def _demand(layout: _Layout, wanted: MetaData, where: str, *, sqlite: bool) -> None:
    faults = [*_lacks(layout, wanted, sqlite=sqlite), *_too_early(layout, wanted)]
    if faults:
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" * (len(faults) > 5))
        raise StoreDamaged(f"{where} is not as its revision makes it: {shown}. {START_OVER}")


def _lacks(there: _Layout, wanted: MetaData, *, sqlite: bool) -> Iterator[str]:
    for table in wanted.sorted_tables:
        if table.name == VERSION_TABLE:
            continue
        if table.name not in there.columns:
            yield f"table {table.name} is missing"
            continue
        yield from _wrong_columns(table, there.columns[table.name], sqlite=sqlite)
        key = [column.name for column in table.primary_key]
        if sorted(key) != sorted(there.keys[table.name]):
            found = ", ".join(there.keys[table.name]) or "none"
            yield f"{table.name} needs the primary key ({', '.join(key)}), not {found}"
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            names = [column.name for column in index.columns]
            if there.indexes[table.name].get(str(index.name)) != names:
                yield f"{table.name} needs the index {index.name} on ({', '.join(names)})"
        for name in sorted(there.unique[table.name]):
            yield f"{table.name} must not be unique by {name}: rows would be lost without a word"


def _wrong_columns(
    table: Table, there: Mapping[str, ReflectedColumn], *, sqlite: bool
) -> Iterator[str]:
    for column in table.columns:
        found = there.get(column.name)
        if found is None:
            yield f"{table.name} has no column {column.name}"
        elif not _fits(found["type"], column.type, sqlite=sqlite):
            yield f"{table.name}.{column.name} is {found['type']!r}, not {column.type!r}"
    for name in sorted(set(there) - set(table.columns.keys())):
        if not there[name]["nullable"] and there[name]["default"] is None:
            yield f"{table.name} has a column {name} that must be filled and that nobody fills"


def _fits(found: TypeEngine[Any], wanted: TypeEngine[Any], *, sqlite: bool) -> bool:
    """Say whether a column takes every value that ours takes. SQLite knows no lengths."""
    family = next(family for family in _FAMILIES if isinstance(wanted, family))
    if not isinstance(found, family):
        return False
    if sqlite:
        return True
    if isinstance(found, String) and found.length is not None:
        return False
    return not isinstance(found, JSONB) and (
        not isinstance(wanted, BigInteger) or isinstance(found, BigInteger)
    )


def _too_early(there: _Layout, wanted: MetaData) -> Iterator[str]:
    for table in metadata.sorted_tables:
        if table.name not in there.columns:
            continue
        now = wanted.tables.get(table.name)
        if now is None:
            yield f"table {table.name} is there already, which only a later revision makes"
            continue
        later = set(table.columns.keys()) - set(now.columns.keys())
        for name in sorted(later & set(there.columns[table.name])):
            yield f"{table.name} has the column {name} already, which only a later revision adds"
        named = {str(i.name) for i in table.indexes} - {str(i.name) for i in now.indexes}
        for name in sorted(named & set(there.indexes[table.name])):
            yield f"{table.name} has the index {name} already, which only a later revision adds"


def _oddities(there: _Layout) -> Iterator[str]:
    for name in sorted(there.columns):
        table = metadata.tables.get(name)
        if table is None:
            yield f"table {name} is not airflow-ett's; it is left alone"
            continue
        more = sorted(set(there.columns[name]) - set(table.columns.keys()))
        if more:
            yield f"{name} has columns that are not airflow-ett's: {', '.join(more)}"


def _layout(connection: Connection) -> _Layout:
    wanted = sorted(own_tables(connection))
    if not wanted:
        return _Layout({}, {}, {}, {})
    inspector = inspect(connection)
    columns = inspector.get_multi_columns(filter_names=wanted)
    keys = inspector.get_multi_pk_constraint(filter_names=wanted)
    indexes = inspector.get_multi_indexes(filter_names=wanted)
    unique = inspector.get_multi_unique_constraints(filter_names=wanted)
    return _Layout(
        {
            name: {column["name"]: column for column in found}
            for (_, name), found in columns.items()
        },
        {name: list(found["constrained_columns"]) for (_, name), found in keys.items()},
        {
            name: {i["name"]: i["column_names"] for i in found}
            for (_, name), found in indexes.items()
        },
        {
            name: {str(one["name"]) for one in found}
            | {str(one["name"]) for one in indexes[schema, name] if one["unique"]}
            for (schema, name), found in unique.items()
        },
    )
