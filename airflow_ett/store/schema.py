"""Bringing a database to this version's tables."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, MetaData, create_engine

from airflow_ett.errors import StoreMismatch
from airflow_ett.store.engine import Store, lock, open_store
from airflow_ett.store.examine import demand, examine
from airflow_ett.store.revision import REVISION, stored_revision

_MIGRATIONS = Path(__file__).with_name("migrations")


def upgrade(url: str) -> None:
    """Create the ETT tables at ``url`` or bring them to this version; harmless to repeat.

    It is one transaction: either all of it happens or nothing. Two at once take turns.
    Raises :class:`StoreError`, :class:`StoreDamaged` above all: tables that are not what their
    revision makes are left as they are.
    """
    store = open_store(url)
    try:
        if _needed(store):
            store.enter_wal()
            store.write(lambda connection: _upgrade(connection, store.address))
        examine(store)
    finally:
        store.close()


def _needed(store: Store) -> bool:
    try:
        store.check()
    except StoreMismatch as mismatch:
        if mismatch.found is not None and mismatch.found > mismatch.needed:
            raise
        return True
    return False


def _upgrade(connection: Connection, address: str) -> None:
    lock(connection, "ett schema")
    where = f"The ETT database {address}"
    found = stored_revision(connection, where)
    if found == REVISION:
        return
    demand(connection, _made_by(found) if found else MetaData(), where)
    _run(connection, "head")


def _made_by(revision: str) -> MetaData:
    """Return the tables that the migrations up to a revision make."""
    made = MetaData()
    with create_engine("sqlite://").begin() as connection:
        _run(connection, revision)
        made.reflect(connection)
    return made


def _run(connection: Connection, revision: str) -> None:
    # Alembic takes longer to import than everything else in the store together.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
