"""The store that the api-server reads."""

from functools import cache

from airflow_ett import config
from airflow_ett.errors import StoreError
from airflow_ett.store import Store, open_store
from airflow_ett.store.examine import examine


@cache
def _store(url: str) -> Store:
    store = open_store(url, patience_s=10)
    try:
        examine(store)
    except StoreError:
        store.close()
        raise
    return store


def current_store() -> Store:
    """Return the store at ``[ett] sql_alchemy_conn``, one per process.

    Its tables are compared once, its revision is looked at each time. Raises :class:`StoreError`
    when it is away, at another revision, or not as its revision makes it.
    """
    store = _store(config.load().sql_alchemy_conn)
    store.check()
    return store
