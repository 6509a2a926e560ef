"""How long a store waits for a database that others hold."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from airflow_ett.errors import StoreError
from airflow_ett.events import RunDir
from airflow_ett.store import Store, ingest_run_dir, open_store, queries, upgrade
from airflow_ett.store.engine import lock

WriteJob = Callable[..., RunDir]


def _ingest_in_vain(url: str, run: RunDir, match: str) -> float:
    store = open_store(url, patience_s=0.5)
    began = time.monotonic()
    store.check()
    with pytest.raises(StoreError, match=match):
        ingest_run_dir(store, run.path)
    store.close()
    return time.monotonic() - began


def test_a_locked_database_is_waited_for_no_longer_than_asked(
    store: Store, url: str, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    if store.file is not None:
        other = sqlite3.connect(store.file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waited = _ingest_in_vain(url, run, "locked")
        other.close()
    else:
        waits: list[float] = []

        def hold(connection: Connection) -> None:
            ingesting = next(iter(run.logs())).read_bytes()[14:34].decode()
            lock(connection, ingesting)
            waits.append(_ingest_in_vain(url, run, "lock timeout"))

        store.write(hold)
        (waited,) = waits
    assert 0.4 < waited < 2.5
    assert queries.jobs(store) == []
    ingest_run_dir(store, run.path)
    assert len(queries.jobs(store)) == 1


@pytest.mark.postgres
def test_a_read_of_a_locked_table_waits_no_longer_than_asked(postgres: Any) -> None:
    """As while a migration changes it: the API answers 503 then, and keeps its threads."""
    postgres.psql("CREATE DATABASE ett_locked")
    url = str(postgres.get_uri(database="ett_locked"))
    upgrade(url)
    with closing(open_store(url)) as other, closing(open_store(url, patience_s=0.5)) as store:

        def hold(connection: Connection) -> float:
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 5000"))
            connection.execute(text("LOCK TABLE ett_job IN ACCESS EXCLUSIVE MODE"))
            began = time.monotonic()
            with pytest.raises(StoreError, match="lock timeout"):
                queries.jobs(store)
            return time.monotonic() - began

        assert 0.4 < other.write(hold) < 2.5
        assert queries.jobs(store) == []
