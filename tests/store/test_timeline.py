"""A job's timeline: folded from the stored events, as of the moment its numbers were made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from airflow_ett.events import CursorFile, Event, RunDir, read_log
from airflow_ett.metric import COMPONENTS, JobMetric
from airflow_ett.store import Store, files, ingest_run_dir, keptfolds, queries, tables
from airflow_ett.store.append import Appender
from airflow_ett.store.timeline import Timelines

WriteJob = Callable[..., RunDir]


def _events(run: RunDir) -> list[Event]:
    return [event for log in run.logs() for event in read_log(log).events]


def _plain(metric: JobMetric) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(metric.as_dict()))
    return found


def _stored(store: Store) -> dict[str, Any]:
    (row,) = queries.jobs(store)
    return {name: row.result[name] for name in row.result if name not in ("revision", "revised_ns")}


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "live"])
def test_it_tells_of_the_same_time_as_the_stored_numbers(
    store: Store, tmp_path: Path, write_job: WriteJob, ended: bool
) -> None:
    begin = time.time_ns() - 95 * 10**9
    ingest_run_dir(store, write_job(tmp_path, begin_ns=begin, ended=ended).path)
    stored = _stored(store)
    assert stored["frozen"] is ended
    timelines = Timelines(store, COMPONENTS)
    for _ in range(2):
        with timelines.look(stored["job"]) as metric:
            assert metric is not None
            assert _plain(metric) == stored
            main = [span for span in metric.spans if span.lane == "main"]
            assert sum(s.end_ns - s.begin_ns for s in main) == stored["wall_ns"]
            assert main[-1].end_ns == stored["end_ns"]
            assert [one.hwm for one in metric.progress] == [0, 1000]


def test_a_second_look_reads_only_what_is_new(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = _events(write_job(tmp_path, ended=False))
    job, appender = events[0].job, Appender(store)
    appender.append(job, events)
    timelines = Timelines(store, COMPONENTS)
    with timelines.look(job) as metric:
        assert metric is not None
        assert not metric.frozen
    newest = max(event.seq for event in events if event.writer == "launcher-1")
    time_ns = max(event.time_ns for event in events) + 10**9
    ended = Event(job, "launcher-1", newest + 1, time_ns, "job_ended", data={"state": "failed"})
    appender.append(job, [ended])
    read: list[int] = []
    load_events = keptfolds.load_events

    def counted(*arguments: Any) -> list[Event]:
        found = list(load_events(*arguments))
        read.append(len(found))
        return found

    monkeypatch.setattr(keptfolds, "load_events", counted)
    with timelines.look(job) as metric:
        assert metric is not None
        assert metric.frozen
    assert read == [1]


def test_what_the_trainer_has_not_closed_yet_is_told(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path, ended=False)
    events = _events(run)
    job, last = events[0].job, max(event.time_ns for event in events)
    # The interval after the second attempt's last one, under the number that it would have had.
    seq = max(event.seq for event in events if event.attempt and event.attempt.submission == 2) + 9
    fields = [2, 0, 0, 0, 102, seq, 2500, 2500, last, last + 5 * 10**9, 2000, 5, 5 * 10**9, 0, 0]
    cursor = CursorFile(run.cursor)
    cursor.write(*fields, 0)
    cursor.close()
    files.write(store, job, "cursor", run.cursor.read_bytes())
    Appender(store).append(job, events)
    with Timelines(store, COMPONENTS).look(job) as metric:
        assert metric is not None
        assert metric.attempts[-1].cursor_to == 2500
        assert metric.progress[-1].at(last + 5 * 10**9) == 2500


def test_without_the_events_there_is_none(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    ingest_run_dir(store, write_job(tmp_path).path)
    (row,) = queries.jobs(store)
    timelines = Timelines(store, COMPONENTS)
    with timelines.look("no such job") as metric:
        assert metric is None
    with timelines.look(row.job) as metric:
        assert metric is not None
    pruned = update(tables.job).values(pruned_events=10_000)
    store.write(lambda connection: connection.execute(pruned))
    store.write(lambda connection: connection.execute(delete(tables.event)))
    with timelines.look(row.job) as metric:
        assert metric is None
