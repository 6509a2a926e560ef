"""Published versions in the store: their rows, the released time of jobs, days and DAGs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select, update

from airflow_ett.events import JobKey, LogWriter, RunDir
from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, ingest_run_dir, periods, queries, tables
from airflow_ett.store.scope import Dags

S = 1_000_000_000
BEGIN = 1_790_000_000 * S
PERIOD = periods.Period("2026-09-01", "2026-09-30", ZoneInfo("UTC"))
VERSION = {
    **{"version": "7", "uri": "s3://m/ranker/7", "name": "ranker", "registry": "s3://m"},
    **{"checkpoint": "s3://c/9", "cursor": 9, "bytes": 4096, "digest": "ab", "existed": False},
}
OLD = ("version", "uri", "begin", "end")


@pytest.fixture
def run(store: Store, tmp_path: Path, write_job: Callable[..., RunDir]) -> RunDir:
    """A training on 2 accelerators that has ended, ingested and rolled up."""
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    roll_up(store, timezone="UTC")
    return run


def _publish(store: Store, run: RunDir, seconds: int, **changes: Any) -> None:
    job = JobKey("default", "ranker", "run-1", "train").id
    log = LogWriter(run.launcher / "p.jsonl", job=job, writer="publish-1")
    times = {"begin": BEGIN + 200 * S, "end": BEGIN + (200 + seconds) * S}
    log.append("published", VERSION | times | changes, time_ns=BEGIN + 999 * S)
    log.close()
    ingest_run_dir(store, run.path)


def _released_ms(store: Store) -> int:
    return periods.total(store, PERIOD, Dags({"ranker"}))["released_weighted_ms"]


def test_each_version_has_a_row_with_all_that_is_known(store: Store, run: RunDir) -> None:
    _publish(store, run, 30)
    _publish(store, run, 2, existed=True)
    (job,) = queries.jobs(store)
    details = queries.job_details(store, job.job)
    assert details is not None
    first, second = details["publish"]
    times = {"begin_ns": BEGIN + 200 * S, "end_ns": BEGIN + 230 * S}
    assert first == VERSION | times | {"number": 0, "released_ns": 30 * S}
    assert (second["existed"], second["released_ns"]) == (True, 0)
    assert details["released_ns"] == details["result"]["released_ns"] == 30 * S


def test_the_sums_know_of_it_before_and_after_the_next_rollup(store: Store, run: RunDir) -> None:
    assert _released_ms(store) == 0
    _publish(store, run, 30)
    assert _released_ms(store) == 60_000
    assert roll_up(store, timezone="UTC") == 1
    with store.read() as connection:
        assert connection.scalar(select(tables.rollup.c.released_weighted_ms)) == 60_000
    assert _released_ms(store) == 60_000


def test_a_version_that_was_there_leaves_the_days_alone(store: Store, run: RunDir) -> None:
    _publish(store, run, 30, existed=True)
    assert roll_up(store, timezone="UTC") == 0


def test_more_than_a_column_holds_does_no_harm(store: Store, run: RunDir) -> None:
    for _ in range(2):
        _publish(store, run, 0, begin=0, end=2**63 - 1, uri="x" * 5000)
    (row,) = queries.job_list(store, queries.Wanted(), after=None, limit=9)
    assert row["released_ns"] is None
    assert _released_ms(store) == 0


def test_a_result_of_an_older_version_counts_all_of_its_versions(store: Store, run: RunDir) -> None:
    _publish(store, run, 30)
    (job,) = queries.jobs(store)
    old = {name: value for name, value in job.result.items() if name != "released_ns"}
    old["published"] = [{name: row[name] for name in OLD} for row in old["published"]]
    change = update(tables.job).values(result=old)
    store.write(lambda connection: connection.execute(change))
    (again,) = queries.jobs(store)
    (row,) = again.result["published"]
    assert again.result["released_ns"] == row["released_ns"] == 30 * S
    assert (row["version"], row["name"], row["existed"]) == ("7", None, False)
    parts = queries.result_parts(store, [job.job], ["published"])
    assert parts[job.job] == {"published": [row]}
