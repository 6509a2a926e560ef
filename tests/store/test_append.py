"""Events that come through the API: stored first, measured as those of a run directory are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from airflow_ett.errors import StoreError
from airflow_ett.events import Event, RunDir, read_log
from airflow_ett.store import Store, files, ingest_run_dir, keptfolds, queries, tables
from airflow_ett.store.append import Appender

WriteJob = Callable[..., RunDir]


def _events(run: RunDir) -> list[Event]:
    return [event for log in run.logs() for event in read_log(log).events]


def _rows(store: Store) -> dict[str, Any]:
    """What is said of the jobs; when they were measured aside."""
    said = {}
    for table in (tables.job, tables.event, *tables.PROJECTED):
        columns = [c for c in table.c if c.name not in ("updated_ns", "revision")]
        with store.read() as connection:
            rows = connection.execute(select(*columns).order_by(*table.primary_key)).all()
        said[table.name] = [tuple(row) for row in rows]
    return said


def _forget(store: Store) -> None:
    for table in tables.metadata.sorted_tables:
        store.write(lambda connection, table=table: connection.execute(delete(table)))  # type: ignore[misc]


def test_rows_are_those_of_the_same_run_directory(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    """Whatever the order and the portions in which its events arrive, and however often."""
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    expected = _rows(store)
    events = _events(run)
    job = events[0].job
    for size, order in ((1, 1), (4, -1), (len(events), 1)):
        _forget(store)
        appender = Appender(store)
        for first in range(0, len(events), size):
            portion = events[::order][first : first + size]
            stored = appender.append(job, portion)
            assert (stored.new, stored.known) == (len(portion), 0)
            again = appender.append(job, portion)
            assert (again.new, again.known, again.failure) == (0, len(portion), None)
        assert _rows(store) == expected


def test_an_event_twice_in_a_request_is_one(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    events = _events(write_job(tmp_path))
    stored = Appender(store).append(events[0].job, [*events, *events])
    assert (stored.new, stored.known) == (len(events), len(events))


def test_who_waits_measures_for_all_that_come_meanwhile(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight requests while one measures: seven leave it to the one that waits."""
    events = _events(write_job(tmp_path))
    job = events[0].job
    appender = Appender(store)
    measure = appender._measure
    begun, go, times = threading.Event(), threading.Event(), []

    def slow(job: str) -> Any:
        times.append(job)
        begun.set()
        assert go.wait(30)
        return measure(job)

    monkeypatch.setattr(appender, "_measure", slow)
    first = threading.Thread(target=appender.append, args=(job, events[:1]))
    first.start()
    assert begun.wait(30)
    others = [
        threading.Thread(target=appender.append, args=(job, events[1 + n :: 8])) for n in range(8)
    ]
    for other in others:
        other.start()
    # All but the one that waits come back while the first is still at it.
    for _ in range(600):
        if sum(other.is_alive() for other in others) == 1:
            break
        threading.Event().wait(0.05)
    assert sum(other.is_alive() for other in others) == 1
    go.set()
    for thread in (first, *others):
        thread.join(30)
    assert times == [job] * 2
    (row,) = queries.jobs(store)
    assert (row.state, row.frozen) == ("succeeded", True)
    assert appender._turns == {}


def test_a_job_that_goes_on_is_measured_again_every_ten_seconds(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    now = [1000.0]
    events = _events(write_job(tmp_path, ended=False))
    job = events[0].job
    appender = Appender(store, lambda: now[0])
    appender.refresh(job)
    appender.append(job, events)
    files.write(store, job, "nodes/heartbeat-2.0-n0", b"")
    (before,) = queries.jobs(store)

    def wall_ns() -> int:
        (row,) = queries.jobs(store)
        return row.wall_ns

    now[0] += 9.9
    appender.refresh(job)
    assert wall_ns() == before.wall_ns
    now[0] += 0.1
    appender.refresh(job)
    assert wall_ns() > before.wall_ns


def test_an_ended_job_is_left_alone_by_a_heartbeat(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    events = _events(write_job(tmp_path))
    appender = Appender(store, lambda: now[0])
    appender.append(events[0].job, events)
    now[0] += 60
    monkeypatch.setattr(appender, "_measure", lambda job: pytest.fail("measured"))
    appender.refresh(events[0].job)


def test_a_job_whose_events_were_pruned_keeps_its_row(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    events = _events(write_job(tmp_path))
    job, appender = events[0].job, Appender(store)
    appender.append(job, events)
    (before,) = queries.jobs(store)
    store.write(lambda connection: connection.execute(delete(tables.event)))
    pruned = update(tables.job).values(pruned_events=len(events))
    store.write(lambda connection: connection.execute(pruned))
    late = Event(job, "agent-late", 0, 10**18, "note")
    assert Appender(store).append(job, [late]).failure is None
    (after,) = queries.jobs(store)
    assert after.result == before.result


def test_folds_are_kept_within_a_bound(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptfolds, "_MOST_EVENTS", 40)
    appender = Appender(store)
    for number in range(4):
        events = _events(write_job(tmp_path, run_id=f"run-{number}", ended=False))
        appender.append(events[0].job, events)
    kept = appender._folds._kept
    assert sum(one.events for one in kept.values()) <= 40
    assert list(kept)[-1] == events[0].job


def test_a_database_that_is_away_is_told(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events are stored, and whoever repeats them has the job measured."""
    events = _events(write_job(tmp_path))
    job, appender = events[0].job, Appender(store)

    def away(*_: object) -> None:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr("airflow_ett.store.append.project", lambda *_, **__: away())
        with pytest.raises(StoreError, match="away"):
            appender.append(job, events)
    assert queries.jobs(store) == []
    assert (appender.append(job, events).known, len(queries.jobs(store))) == (len(events), 1)
