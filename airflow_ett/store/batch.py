"""One transaction: a run directory's new events, how far its logs were read, its projection."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sqlalchemy import Connection, insert, select

from airflow_ett.errors import EventLogError
from airflow_ett.events import Chunk, CursorRecord, Event
from airflow_ett.metric import Components
from airflow_ett.storage import Readable
from airflow_ett.store import tables
from airflow_ett.store.engine import insert_new, is_about_values, lock, reason
from airflow_ett.store.folds import Folds, JobFold
from airflow_ett.store.project import load_events, project
from airflow_ett.store.pruned import lacks_events
from airflow_ett.store.report import IngestReport
from airflow_ett.store.rundirs import source_name
from airflow_ett.store.sources import find_sources, forget_sources


@dataclass(frozen=True, slots=True)
class Stored:
    """What storing a batch did, and why its job could not be measured, if so.

    ``fold`` is the job's; it may be kept once the transaction is committed. ``incomplete``: raw
    events of the job were pruned and are not all back, so it was not measured.
    """

    report: IngestReport
    failure: EventLogError | None = None
    fold: JobFold | None = None
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What was read from one run directory, to be stored in one transaction.

    ``offsets`` is where reading began, by log; 0 where it is not in there.
    """

    place: Readable
    logs: Sequence[str]
    offsets: Mapping[str, int]
    reads: Mapping[str, Chunk]
    cursor: CursorRecord | None
    heartbeat_ns: int | None
    components: Components
    folds: Folds

    def store(self, connection: Connection) -> Stored:
        """Store the events and project their job. Harmless to repeat."""
        bad, problems = self._quarantine(connection)
        job = self._job(connection)
        if job is None:
            return Stored(IngestReport(bad_lines=bad, problems=tuple(problems)))
        lock(connection, job)
        events = [event for chunk in self.reads.values() for event in chunk.events]
        own = [event for event in events if event.job == job]
        if len(own) < len(events):
            foreign = len(events) - len(own)
            problems.append(
                f"{self.place.place}: {foreign} events of other jobs than {job}, skipped"
            )
        first = not _has_events(connection, job)
        new = insert_new(connection, tables.event, map(event_row, own))
        report = IngestReport(new, bad, problems=tuple(problems))
        try:
            with connection.begin_nested():
                fold = self._project(connection, job, own, all_new=new == len(own), first=first)
        # Anybody may write a log: whatever its events do to the metric is this job's trouble alone.
        except Exception as error:
            if not is_about_values(error):
                raise
            failure = EventLogError(
                f"The events of job {job} in {self.place.place} are stored but cannot be measured: "
                f"{reason(error)}. The next ingest tries again."
            )
            failure.__cause__ = error
            return Stored(report, failure)
        incomplete = fold is None and lacks_events(connection, job)
        return Stored(replace(report, jobs=(job,)), fold=fold, incomplete=incomplete)

    def _project(
        self, connection: Connection, job: str, own: Sequence[Event], *, all_new: bool, first: bool
    ) -> JobFold | None:
        """Measure and replace the job's rows; return its fold unless the job has ended.

        ``all_new`` says that every one of ``own`` was stored now, ``first`` that none was before.
        """
        open_interval = self._open_interval(connection, job)
        offsets = _offsets(connection, job)
        fold = self.folds.take(job)
        if fold is not None and all_new and fold.goes_on(offsets, own, open_interval):
            fold.add(own)
        elif lacks_events(connection, job):
            self._remember_reads(connection, job, offsets)
            return None
        else:
            stored = own if first and all_new else load_events(connection, job)
            fold = JobFold(job, stored, self.components)
        now_ns = time.time_ns()
        metric = fold.measure(open_interval, now_ns=now_ns, last_sign_ns=self.heartbeat_ns)
        project(connection, job, metric, fold.submitted, self.components, now_ns=now_ns)
        fold.read_up_to(self._remember_reads(connection, job, offsets))
        return None if metric.frozen else fold

    def _remember_reads(
        self, connection: Connection, job: str, offsets: Mapping[str, int]
    ) -> dict[str, int]:
        """Note how far the logs are read; ``offsets`` is how far they had been. Return all."""
        moved = {name: self._moved(offsets.get(name, 0), name) for name in self.reads}
        _remember(connection, job, moved)
        return {**offsets, **moved}

    def _open_interval(self, connection: Connection, job: str) -> Event | None:
        """Return what the trainer has not closed yet: measured with, never stored.

        The trainer may still write it, longer, under the same number.
        """
        found = self.cursor.open_interval(job) if self.cursor else None
        if found is None:
            return None
        event = tables.event.c
        same = (event.job == job, event.writer == found.writer, event.seq == found.seq)
        return None if connection.scalar(select(event.seq).where(*same)) is not None else found

    def _job(self, connection: Connection) -> str | None:
        stored = (source.job for source in find_sources(connection, self.logs))
        first = (event.job for chunk in self.reads.values() for event in chunk.events)
        return next(chain(stored, first), None)

    def _quarantine(self, connection: Connection) -> tuple[int, list[str]]:
        rows = [
            {
                "path": source_name(self.place, bad.path.as_posix()),
                "offset": bad.offset,
                "problem": bad.problem,
            }
            for chunk in self.reads.values()
            for bad in chunk.bad
        ]
        texts = [f"{r['path']}, byte {r['offset']}: {r['problem']}" for r in rows]
        return insert_new(connection, tables.quarantine, rows), texts

    def _moved(self, stored: int, log: str) -> int:
        """Return how far the log is read now. Another ingest may have come further meanwhile."""
        mine = self.reads[log].offset
        return mine if stored == self.offsets.get(log, 0) else max(stored, mine)


def _remember(connection: Connection, job: str, offsets: Mapping[str, int]) -> None:
    if offsets:
        forget_sources(connection, offsets)
        rows = [{"path": log, "job": job, "offset": offset} for log, offset in offsets.items()]
        connection.execute(insert(tables.source), rows)


def _offsets(connection: Connection, job: str) -> dict[str, int]:
    source = tables.source.c
    rows = connection.execute(select(source.path, source.offset).where(source.job == job))
    return {row.path: row.offset for row in rows}


def _has_events(connection: Connection, job: str) -> bool:
    event = tables.event.c
    known = select(event.seq).where(event.job == job).limit(1)
    return connection.scalar(known) is not None


def event_row(event: Event) -> dict[str, Any]:
    """Return an event as its row."""
    submission, scheduler_restart, elastic_restart = event.attempt or (None, None, None)
    return {
        "job": event.job,
        "writer": event.writer,
        "seq": event.seq,
        "time_ns": event.time_ns,
        "kind": str(event.kind),
        "submission": submission,
        "scheduler_restart": scheduler_restart,
        "elastic_restart": elastic_restart,
        "rank": event.rank,
        "data": dict(event.data),
        "extra": dict(event.extra),
    }
