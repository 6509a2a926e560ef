"""A database of the first revision, with the rows of real ingests, brought to this version."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, MetaData, Table, insert, select

from airflow_ett.events import JobKey, LogWriter, RunDir
from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, ingest_root, open_store, queries, schema, tables, upgrade
from airflow_ett.store.periods import Period, total
from airflow_ett.store.queries import Wanted
from airflow_ett.store.scope import Dags

S = 1_000_000_000
BEGIN = 1_790_000_000 * S
Rows = list[dict[str, Any]]
Contents = dict[str, Rows]

# What the upgrade makes anew, or leaves to the next rollup.
_ANEW = {"rolled_up", "rolled_up_day"}


def _rows(connection: Connection, table: Table) -> Rows:
    query = select(*table.columns).order_by(*table.primary_key)
    return [dict(row) for row in connection.execute(query).mappings()]


def _fresh(path: Path, root: Path) -> Store:
    """A store of this version with all that is below ``root``."""
    url = f"sqlite:///{path}"
    upgrade(url)
    store = open_store(url)
    ingest_root(store, root)
    roll_up(store, timezone="UTC")
    return store


def _contents(store: Store) -> Contents:
    with store.read() as connection:
        return {table.name: _rows(connection, table) for table in tables.metadata.sorted_tables}


def _make_first(url: str, contents: Contents) -> dict[str, Rows]:
    """Make a database by the first migration and put in what its columns take; return that."""
    store = open_store(url)
    store.enter_wal()

    def work(connection: Connection) -> dict[str, Rows]:
        config = Config()
        config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        first = MetaData()
        first.reflect(connection)
        put: dict[str, Rows] = {}
        for name, rows in contents.items():
            if rows and name in first.tables:
                kept = first.tables[name].columns.keys()
                put[name] = [{key: row[key] for key in row if key in kept} for row in rows]
                connection.execute(insert(tables.metadata.tables[name]), put[name])
        return put

    put = store.write(work)
    store.close()
    return put


@pytest.fixture
def root(tmp_path: Path, write_job: Callable[..., RunDir]) -> Path:
    """Three ended jobs, one of them published, one that lives, and a line that is no event."""
    root = tmp_path / "runs"
    for number in (1, 2):
        write_job(root, run_id=f"run-{number}", begin_ns=BEGIN + number * 86_400 * S)
    _publish(write_job(root, run_id="run-0", begin_ns=BEGIN))
    live = write_job(root, run_id="live", begin_ns=BEGIN, ended=False)
    (live.nodes / "odd.jsonl").write_text("no event\n")
    return root


def _publish(run: RunDir) -> None:
    """Tell what the first version told."""
    job = JobKey("default", "ranker", "run-0", "train").id
    log = LogWriter(run.launcher / "p.jsonl", job=job, writer="publish-1")
    for number, (begin, end) in enumerate([(200, 230), (300, 299), (400, 410)]):
        told = {"version": f"{number}", "uri": f"/m/{number}", "begin": begin * S, "end": end * S}
        log.append("published", told, time_ns=BEGIN + 500 * S)
    log.append("published", {"version": "4", "uri": "/m/4"}, time_ns=BEGIN + 500 * S)
    log.close()


def test_rows_of_the_first_revision_survive_and_go_on(
    empty_url: str, tmp_path: Path, root: Path, write_job: Callable[..., RunDir]
) -> None:
    contents = _contents(_fresh(tmp_path / "fresh.db", root))
    put = _make_first(empty_url, contents)
    projected = {"ett_job", "ett_attempt", "ett_phase", "ett_publish"}
    assert set(put) >= {"ett_event", "ett_rollup", *projected}
    upgrade(empty_url)
    store = open_store(empty_url)
    store.check()
    found = _contents(store)
    for name, rows in put.items():
        if name != "ett_rollup":
            kept = [
                {key: row[key] for key in old} for row, old in zip(found[name], rows, strict=True)
            ]
            assert _without(kept, _ANEW) == _without(rows, _ANEW), name

    # What came meanwhile is added, nothing is taken twice, and no revision is made of it.
    write_job(root, run_id="live", begin_ns=BEGIN)
    write_job(root, run_id="new", begin_ns=BEGIN)
    report = ingest_root(store, root)
    assert report.problems == ()
    roll_up(store, timezone="UTC")
    expected = _fresh(tmp_path / "second.db", root)
    assert _comparable(_contents(store)) == _comparable(_contents(expected))
    assert _answers(store) == _answers(expected)


def _without(rows: Rows, names: set[str]) -> Rows:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def _comparable(contents: Contents) -> Contents:
    """Leave out when the numbers were made, and where attempts of ended jobs logged."""
    return {name: _without(rows, {"updated_ns"}) for name, rows in contents.items()}


def _answers(store: Store) -> list[Any]:
    period = Period("2026-09-01", "2026-10-31", ZoneInfo("UTC"))
    sums = total(store, period, Dags({"ranker"}))
    listed = queries.job_list(store, Wanted(dag_ids={"ranker"}), after=None, limit=100)
    details = [queries.job_details(store, row["job"]) for row in listed]
    for row in [*listed, *(one for one in details if one)]:
        row.pop("updated_ns")
    assert (len(listed), sums["jobs"], sums["released_weighted_ms"]) == (5, 5, 80_000)
    return [sums, listed, details]
