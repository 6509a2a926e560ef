"""At which revision the tables of a database are; a database that does not tell is not trusted."""

from __future__ import annotations

import re

from sqlalchemy import Connection, inspect, text

from airflow_ett.errors import StoreDamaged
from airflow_ett.store.tables import metadata

VERSION_TABLE = "ett_alembic_version"
REVISION = "0005"
"""The revision that this version needs. Revisions are numbered, so that their order is theirs."""

START_OVER = (
    "Nothing was changed. Restore the database whole, or move all its ett_ tables away; then run "
    "`airflow-ett db upgrade` and `airflow-ett db rebuild`."
)
"""What to do about tables that nobody can trust."""

_FIRST = "0001"


def own_tables(connection: Connection) -> set[str]:
    """Return the tables named ``ett_…`` that are there, ours or not; not the version table."""
    names = inspect(connection).get_table_names()
    return {name for name in names if name.startswith("ett_")} - {VERSION_TABLE}


def stored_revision(connection: Connection, where: str) -> str | None:
    """Return the revision that the database says it is at, None where it has no tables of ours.

    ``where`` names the database in messages. Raises :class:`StoreDamaged` where tables are there
    and it says nothing, two things, or a word that is no revision.
    """
    if not inspect(connection).has_table(VERSION_TABLE):
        _demand_none(connection, where, f"no table {VERSION_TABLE}")
        return None
    told = connection.execute(text(f"SELECT * FROM {VERSION_TABLE}"))
    columns = list(told.keys())
    if "version_num" not in columns:
        raise StoreDamaged(
            f"{where}: table {VERSION_TABLE} has no column version_num, so it was not made by "
            f"airflow-ett. {START_OVER}"
        )
    rows = sorted(str(row.version_num) for row in told)
    if not rows:
        _demand_none(connection, where, f"no row in {VERSION_TABLE}")
        return None
    if len(rows) > 1:
        raise StoreDamaged(
            f"{where} says that it is at {len(rows)} revisions at once ({', '.join(rows)}): "
            f"table {VERSION_TABLE} needs one row. {START_OVER}"
        )
    (found,) = rows
    if not re.fullmatch(r"\d{4}", found, re.ASCII) or found < _FIRST:
        raise StoreDamaged(
            f"{where} says that it is at revision {found!r}, which no airflow-ett makes (this "
            f"version needs {REVISION}). {START_OVER}"
        )
    return found


def _demand_none(connection: Connection, where: str, lack: str) -> None:
    ours = sorted(own_tables(connection) & set(metadata.tables))
    if ours:
        raise StoreDamaged(
            f"{where} holds {', '.join(ours)}, but {lack} that tells their revision: they were "
            f"made by hand, or restored in part. {START_OVER}"
        )
