"""Bringing a database to this version's tables."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from airflow_ett.errors import StoreMismatch
from airflow_ett.store.engine import Store, lock, open_store

_MIGRATIONS = Path(__file__).with_name("migrations")


def upgrade(url: str) -> None:
    """Create the ETT tables at ``url`` or bring them to this version; harmless to repeat.

    It is one transaction: either all of it happens or nothing. Two at once take turns.
    Raises :class:`StoreError`.
    """
    store = open_store(url)
    try:
        if _needed(store):
            store.enter_wal()
            store.write(_upgrade)
            store.check()
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


def _upgrade(connection: Connection) -> None:
    # Alembic takes longer to import than everything else in the store together.
    from alembic import command
    from alembic.config import Config

    lock(connection, "ett schema")
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
