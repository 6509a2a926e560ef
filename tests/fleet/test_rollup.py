"""Sums per day and DAG."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import AttemptId, LogWriter, RunDir
from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, ingest_root, open_store, queries, tables, upgrade

S = 1_000_000_000
WriteJob = Callable[..., RunDir]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A fresh SQLite store."""
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    store = open_store(url)
    yield store
    store.close()


def _at(day: int, hour: int) -> int:
    return int(datetime(2026, 11, day, hour, tzinfo=UTC).timestamp()) * S


def _rollup(store: Store) -> list[dict[str, Any]]:
    query = select(tables.rollup).order_by(*tables.rollup.primary_key)
    with store.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def _ingest_and_roll_up(store: Store, root: Path, timezone: str = "UTC") -> int:
    ingest_root(store, root)
    return roll_up(store, timezone=timezone)


def test_a_days_rows_are_the_sums_of_its_jobs(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    write_job(tmp_path, run_id="1", begin_ns=_at(1, 3))
    write_job(tmp_path, run_id="2", begin_ns=_at(1, 9), accelerators=8)
    write_job(tmp_path, run_id="3", begin_ns=_at(1, 9), dag_id="other")
    write_job(tmp_path, run_id="4", begin_ns=_at(2, 9))
    assert _ingest_and_roll_up(store, tmp_path) == 2
    rows = _rollup(store)
    assert [(r["day"], r["dag_id"], r["jobs"], r["attempts"]) for r in rows] == [
        ("2026-11-01", "other", 1, 2),
        ("2026-11-01", "ranker", 2, 4),
        ("2026-11-02", "ranker", 1, 2),
    ]
    jobs = [j for j in queries.jobs(store, dag_ids=["ranker"]) if j.run_id in "12"]
    row = rows[1]
    for name in ("wall_ns", "held_ns", "effective_ns"):
        assert row[name] == sum(getattr(job, name) for job in jobs)
        weighted = sum(getattr(job, name) * job.accelerators for job in jobs)
        assert row["accelerator_ns"][name.removesuffix("_ns")] == weighted
    assert sum(row["components_ns"].values()) == row["wall_ns"]
    assert row["components_ns"]["effective"] == row["effective_ns"]
    assert row["failures"] == {"application": 2}


def test_rolling_up_again_does_nothing(store: Store, tmp_path: Path, write_job: WriteJob) -> None:
    write_job(tmp_path)
    _ingest_and_roll_up(store, tmp_path)
    before = _rollup(store)
    assert _ingest_and_roll_up(store, tmp_path) == 0
    assert _rollup(store) == before


def test_a_live_job_is_booked_only_when_it_ends(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    write_job(tmp_path, ended=False)
    assert _ingest_and_roll_up(store, tmp_path) == 0
    assert _rollup(store) == []
    write_job(tmp_path)
    assert _ingest_and_roll_up(store, tmp_path) == 1
    assert [row["jobs"] for row in _rollup(store)] == [1]


def test_a_revised_job_replaces_what_it_had_added(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path, begin_ns=_at(1, 3))
    write_job(tmp_path, run_id="other", begin_ns=_at(1, 3))
    _ingest_and_roll_up(store, tmp_path)
    before = _rollup(store)[0]
    job = queries.jobs(store, run_id="run-1")[0].job
    late = LogWriter(run.launcher / "late.jsonl", job=job, writer="late")
    state = {"submission": 2, "raw": "COMPLETED", "state": "SUCCEEDED", "ended_ns": _at(2, 3)}
    late.append("scheduler_state", state, time_ns=_at(2, 3))
    assert _ingest_and_roll_up(store, tmp_path) == 2
    rows = _rollup(store)
    assert [(row["day"], row["jobs"]) for row in rows] == [("2026-11-01", 1), ("2026-11-02", 1)]
    assert sum(row["wall_ns"] for row in rows) == before["wall_ns"] + 86_400 * S - 90 * S


def test_days_are_those_of_the_configured_zone(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    write_job(tmp_path, begin_ns=_at(1, 23))
    _ingest_and_roll_up(store, tmp_path)
    assert [row["day"] for row in _rollup(store)] == ["2026-11-01"]
    assert roll_up(store, timezone="Asia/Tokyo") == 1
    assert [(row["day"], row["timezone"]) for row in _rollup(store)] == [
        ("2026-11-02", "Asia/Tokyo")
    ]


@pytest.mark.parametrize(
    ("zone", "day", "begin", "hours"),
    [
        ("Europe/Berlin", "2026-10-25", "2026-10-25T00:00+02:00", 25),
        ("Europe/Berlin", "2026-03-29", "2026-03-29T00:00+01:00", 23),
        # Its clocks change by half an hour.
        ("Australia/Lord_Howe", "2026-04-05", "2026-04-05T00:00+11:00", 24.5),
        ("Australia/Lord_Howe", "2026-10-04", "2026-10-04T00:00+10:30", 23.5),
        # Midnight itself does not exist: the day begins at one o'clock.
        ("America/Asuncion", "2023-10-01", "2023-10-01T01:00-03:00", 23),
        # This day was left out of the calendar; the one after it begins where it would have.
        ("Pacific/Apia", "2011-12-31", "2011-12-31T00:00+14:00", 24),
        ("Asia/Kathmandu", "2026-11-01", "2026-11-01T00:00+05:45", 24),
        ("Pacific/Kiritimati", "2026-11-01", "2026-11-01T00:00+14:00", 24),
        ("Etc/GMT+12", "2026-11-01", "2026-11-01T00:00-12:00", 24),
    ],
)
def test_a_day_holds_what_ends_between_its_midnights(
    store: Store, tmp_path: Path, write_job: WriteJob, zone: str, day: str, begin: str, hours: float
) -> None:
    first = int(datetime.fromisoformat(begin).timestamp()) * S
    last = first + int(hours * 3600) * S - S
    ends = {"before": first - S, "first": first, "last": last, "after": last + S}
    for name in ends:
        write_job(tmp_path, run_id=name)
    ingest_root(store, tmp_path)
    for name, end_ns in ends.items():
        job = tables.job
        change = update(job).where(job.c.run_id == name).values(end_ns=end_ns)
        store.write(lambda connection, change=change: connection.execute(change))
    roll_up(store, timezone=zone)
    assert {row["day"]: row["jobs"] for row in _rollup(store)}[day] == 2
    assert sum(row["jobs"] for row in _rollup(store)) == 4
    with store.read() as connection:
        query = select(tables.job.c.run_id).where(tables.job.c.rolled_up_day == day)
        assert set(connection.scalars(query)) == {"first", "last"}


@pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", ""])
def test_an_unknown_zone_is_named(store: Store, zone: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[ett\] timezone"):
        roll_up(store, timezone=zone)


def test_hostile_times_and_names_stop_no_sum(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    write_job(tmp_path, run_id="good", begin_ns=_at(1, 3))
    for number in range(3):
        names = {"dag_id": "x" * 9_000 + "\0", "deployment": f"{number}\0", "run_id": str(number)}
        run = write_job(tmp_path, accelerators=2**63 - 1, **names)
        job = next(iter(run.logs())).read_bytes()[14:34].decode()
        for name, time_ns in (("early", 1), ("late", 2**63 - 1)):
            log = LogWriter(run.nodes / f"{name}.jsonl", job=job, writer=name)
            attempt = AttemptId(1 if name == "early" else 2)
            log.append("process_started", {}, time_ns=time_ns, attempt=attempt)
            log.close()
    report = ingest_root(store, tmp_path)
    assert (len(report.jobs), report.problems) == (4, ())
    roll_up(store, timezone="UTC")
    rows = _rollup(store)
    assert sum(row["jobs"] for row in rows) == 4
    assert [row["jobs"] for row in rows if row["dag_id"] == "ranker"] == [1]


def test_a_sum_beyond_64_bits_is_the_largest_number(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    for number in range(3):
        write_job(tmp_path, run_id=str(number))
    ingest_root(store, tmp_path)
    store.write(lambda c: c.execute(update(tables.job).values(wall_ns=2**62, end_ns=2**63 - 1)))
    roll_up(store, timezone="UTC")
    (row,) = _rollup(store)
    assert (row["day"], row["jobs"], row["wall_ns"]) == ("2262-04-11", 3, 2**63 - 1)
