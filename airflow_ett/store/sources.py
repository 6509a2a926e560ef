"""How far logs were read, of as many logs as there are: a statement takes so many values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from airflow_ett.store import tables

_AT_ONCE = 10_000
"""Postgres takes 65,535 values, an SQLite 32,766 unless it was built for more."""


def find_sources(connection: Connection, names: Iterable[str]) -> list[Row[Any]]:
    """Return the rows of those sources that are known."""
    source = tables.source
    return [
        row
        for some in _portions(names)
        for row in connection.execute(select(source).where(source.c.path.in_(some)))
    ]


def forget_sources(connection: Connection, names: Iterable[str]) -> None:
    """Remove the rows of sources."""
    for some in _portions(names):
        connection.execute(delete(tables.source).where(tables.source.c.path.in_(some)))


def _portions(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while some := list(islice(left, _AT_ONCE)):
        yield some
