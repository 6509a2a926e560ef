"""The configured database, looked at as a whole before a command uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_ett import config
from airflow_ett.metric.phases import configured

if TYPE_CHECKING:
    from airflow_ett.store import Store


def opened(settings: config.Settings | None = None) -> Store:
    """Return the store of ``[ett] sql_alchemy_conn``.

    Raises :class:`StoreError` unless its tables are those that this version needs.
    """
    from airflow_ett.store import open_store
    from airflow_ett.store.examine import examine

    settings = settings or config.load()
    store = open_store(settings.sql_alchemy_conn, components=configured(settings))
    examine(store)
    return store
