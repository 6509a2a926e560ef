"""The files of jobs whose logs the API holds. Names are checked by whoever calls.

Times are Postgres's own, however many API servers it has. An SQLite file is on one host, whose
clock is the only one.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, delete, extract, func, select
from sqlalchemy.dialects import postgresql, sqlite

from airflow_ett.storage import Entry
from airflow_ett.store import tables
from airflow_ett.store.engine import Store

_file = tables.file.c


def create(store: Store, job: str, name: str, content: bytes) -> bool:
    """Make a file for one of several alone; False where another content has that name.

    Raises :class:`StoreError`, as all of these do.
    """

    def work(connection: Connection) -> bool:
        new = _insert(connection, job, name, content).on_conflict_do_nothing()
        made = connection.execute(new).rowcount == 1
        return made or stored(connection, job, name) == content

    return store.write(work)


def write(store: Store, job: str, name: str, content: bytes) -> None:
    """Write a file whole, in place of the former one."""

    def work(connection: Connection) -> None:
        new = _insert(connection, job, name, content)
        values = {"content": new.excluded.content, "time_ns": new.excluded.time_ns}
        keys = [_file.job, _file.name]
        connection.execute(new.on_conflict_do_update(index_elements=keys, set_=values))

    store.write(work)


def read(store: Store, job: str, name: str) -> bytes | None:
    """Return a file's content, None where there is none."""
    with store.read() as connection:
        return stored(connection, job, name)


def remove(store: Store, job: str, name: str) -> None:
    """Remove a file; nothing happens where there is none."""
    store.write(lambda connection: connection.execute(delete(tables.file).where(*_is(job, name))))


def entries(store: Store, job: str, folder: str) -> list[Entry]:
    """Return the files right in a folder (``""``: in none), by name."""
    prefix = f"{folder}/" if folder else ""
    query = select(_file.name, _file.time_ns).where(_file.job == job)
    if prefix:
        query = query.where(begins(_file.name, prefix))
    with store.read() as connection:
        rows = connection.execute(query).all()
    found = (Entry(row.name.removeprefix(prefix), row.time_ns) for row in rows)
    return sorted(entry for entry in found if "/" not in entry.name)


def newest_ns(connection: Connection, job: str, prefix: str) -> int | None:
    """Return when a file was last written whose name begins so; None where there is none."""
    ours = (_file.job == job, begins(_file.name, prefix))
    found: int | None = connection.scalar(select(func.max(_file.time_ns)).where(*ours))
    return found


def now_ns(store: Store) -> int:
    """Return what the clock says whose times the files bear."""
    with store.read() as connection:
        return int(connection.scalar(select(clock(connection))) or 0)


def ended_ns(store: Store, job: str) -> int | None:
    """Return when a job ended, None while it goes on or where nobody knows it."""
    known = tables.job.c
    query = select(known.end_ns).where(known.job == job, known.frozen)
    with store.read() as connection:
        found: int | None = connection.scalar(query)
    return found


def clock(connection: Connection) -> Any:
    """Return the time now, in UTC nanoseconds, as an expression."""
    if connection.dialect.name == "postgresql":
        return cast(extract("epoch", func.clock_timestamp()) * 10**9, BigInteger)
    return cast(time.time_ns(), BigInteger)


def begins(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    """Return whether a text begins so: to the letter, where SQLite's LIKE knows no capitals."""
    return func.substr(column, 1, len(prefix)) == prefix


def _insert(connection: Connection, job: str, name: str, content: bytes) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    row = {"job": job, "name": name, "content": content, "time_ns": clock(connection)}
    return dialect.insert(tables.file).values(row)


def stored(connection: Connection, job: str, name: str) -> bytes | None:
    """Return a file's content, None where there is none."""
    found: bytes | None = connection.scalar(select(_file.content).where(*_is(job, name)))
    return found


def _is(job: str, name: str) -> tuple[Any, Any]:
    return _file.job == job, _file.name == name
