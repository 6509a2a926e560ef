"""SQLite and Postgres hold the same of the same logs, to the nanosecond."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select

from airflow_ett.events import AttemptId, LogWriter, RunDir
from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, ingest_root, open_store, queries, tables, upgrade
from airflow_ett.store.periods import Period, by_dag
from airflow_ett.store.queries import Wanted
from airflow_ett.store.scope import Dags

S = 1_000_000_000
BEGIN = 1_790_000_000 * S
ZONE = "Asia/Kathmandu"
LAST = 2**63 - 1


def _tell_odd_things(run: RunDir) -> None:
    """Append the first and the last instant that a column holds, and values of every kind."""
    job = next(iter(run.logs())).read_bytes()[14:34].decode()
    log = LogWriter(run.nodes / "odd.jsonl", job=job, writer="Ödd 'writer' \\ {\"1\",NULL}")
    for time_ns in (0, 1, BEGIN + 1, BEGIN + 999_999_999, LAST):
        log.append("note", {"at": time_ns}, time_ns=time_ns)
    values = ["NULL", "", "\\", '"', "{}", "a,b", "\n\t", "ä🦊\u2028", "\x00\x7f", None, True, 0.1]
    values += [1e300, -1, LAST, 10**30, [], {}, [[1, {"a": '\\"'}]]]
    log.append("note", {"values": values}, time_ns=BEGIN, attempt=AttemptId(7, 8, 9), rank=3)
    log.append("note", {}, time_ns=BEGIN)
    log.close()


def _everything(store: Store) -> dict[str, list[dict[str, Any]]]:
    found = {}
    with store.read() as connection:
        for table in tables.metadata.sorted_tables:
            columns = [column for column in table.columns if column.name != "updated_ns"]
            rows = [dict(row) for row in connection.execute(select(*columns)).mappings()]
            # Each database has an order of texts of its own.
            keys = table.primary_key.columns.keys()
            found[table.name] = sorted(rows, key=lambda row, keys=keys: [row[key] for key in keys])
    return found


def _answers(store: Store) -> list[Any]:
    period = Period("2026-09-01", "2026-09-30", ZoneInfo(ZONE))
    listed = queries.job_list(store, Wanted(), after=None, limit=10)
    for row in listed:
        row.pop("updated_ns")
    return [listed, by_dag(store, period, Dags(None)), by_dag(store, period, Dags({"ä"}))]


@pytest.mark.postgres
def test_both_databases_hold_the_same_of_the_same_logs(
    postgres: Any, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    for number in range(6):
        # Some end within the second in which a day ends in Nepal, 18:15 UTC.
        begin_ns = BEGIN + (29_610 + number * 43_195) * S + number
        names = {"run_id": f"run-{number}", "dag_id": "ä" if number % 2 else "b'\"%"}
        run = write_job(tmp_path / "runs", begin_ns=begin_ns, ended=number < 5, **names)
        if number in (0, 5):
            _tell_odd_things(run)
    postgres.psql("CREATE DATABASE alike")
    urls = (f"sqlite:///{tmp_path}/ett.db", str(postgres.get_uri(database="alike")))
    found = []
    for url in urls:
        upgrade(url)
        store = open_store(url)
        assert ingest_root(store, tmp_path / "runs").problems == ()
        roll_up(store, timezone=ZONE)
        found.append((_everything(store), _answers(store)))
        store.close()
    on_sqlite, on_postgres = found
    assert on_sqlite == on_postgres
    assert len(on_sqlite[0]["ett_event"]) > 100
    times = {row["time_ns"] for row in on_sqlite[0]["ett_event"] if row["kind"] == "note"}
    assert times == {0, 1, BEGIN, BEGIN + 1, BEGIN + 999_999_999, LAST}
