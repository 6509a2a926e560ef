"""From the job logs into the database: incremental, idempotent, safe to run anywhere at once.

A line is read again after a crash, and by two ingests at the same time: ``(job, writer, seq)``
keeps one of it. A job's new events, how far its logs were read, and its projection are one
transaction under the job's lock. A projection that fails is undone alone: the events are kept, but
not how far the logs were read, so that the next ingest reads the same lines and tries again.
"""

from __future__ import annotations

import logging
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from airflow_ett.errors import EventLogError
from airflow_ett.events import Chunk, CursorRecord, Event, RunDir, read_cursor, read_log, slug
from airflow_ett.store import tables
from airflow_ett.store.engine import Store, insert_new, is_about_values, lock, reason
from airflow_ett.store.project import project
from airflow_ett.store.storable import refusal

_DEPTH = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What an ingest did: events new to the database, lines that are no events, jobs touched.

    ``problems`` says of each bad line and each unreadable file what is wrong, and where.
    """

    new_events: int = 0
    bad_lines: int = 0
    jobs: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __add__(self, other: IngestReport) -> IngestReport:
        return IngestReport(
            self.new_events + other.new_events,
            self.bad_lines + other.bad_lines,
            self.jobs + other.jobs,
            self.problems + other.problems,
        )


_Outcome = tuple[IngestReport, EventLogError | None]
"""What an ingest of one run directory did, and why its job could not be measured, if so."""


def ingest_run_dir(store: Store, run_dir: Path) -> IngestReport:
    """Read what is new in the logs of one run directory and project its job.

    All lines must be of one job, that of the first event; others are reported and skipped. A
    corrupt line is quarantined with its place and stops nothing. Links are not followed.
    Raises :class:`StoreError` when the database fails, ``OSError`` when the directory cannot be
    looked into, and :class:`EventLogError` when the job's events cannot be measured; these are
    stored then, and the next ingest tries again.
    """
    report, failure = _ingest(store, run_dir)
    if failure is not None:
        raise failure
    return report


def _ingest(store: Store, run_dir: Path) -> _Outcome:
    run = RunDir(run_dir.absolute())
    # Read before the logs: whatever interval is missing from them then is the one in the cursor.
    cursor = _cursor(run)
    logs, nameless = _logs(run)
    with store.read() as connection:
        known = _known(connection, logs)
        settled = _is_frozen(connection, known)
    reads, noticed = _read(logs, known)
    noticed += nameless
    if settled and not reads:
        return noticed, None
    report, failure = store.write(_Batch(run, tuple(logs), reads, cursor).store)
    return noticed + report, failure


def ingest_root(
    store: Store, run_root: Path, deployment: str | None = None, since_ns: int | None = None
) -> IngestReport:
    """Ingest every run directory below ``run_root`` that has unread bytes or an unfinished job.

    ``deployment`` keeps to that deployment's jobs, ``since_ns`` to directories with a log written
    since then. A directory that cannot be ingested is reported and does not stop the others.
    Raises :class:`StoreError` when the database fails.
    """
    total = IngestReport()
    for folder in run_dirs(run_root, deployment):
        try:
            if since_ns is None or _newest(RunDir(folder).logs()) >= since_ns:
                report, failure = _ingest(store, folder)
                problems = () if failure is None else (str(failure),)
                total += report + IngestReport(problems=problems)
        except (EventLogError, OSError) as error:
            total += IngestReport(problems=(f"{folder}: {error}",))
    return total


def run_dirs(run_root: Path, deployment: str | None = None) -> Iterator[Path]:
    """Yield the run directories below ``run_root``, never through a link."""
    if deployment is None:
        return _descend(run_root, _DEPTH)
    return _descend(run_root / slug(deployment), _DEPTH - 1)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What was read from one run directory, to be stored in one transaction."""

    run: RunDir
    logs: Sequence[str]
    reads: Mapping[str, Chunk]
    cursor: CursorRecord | None

    def store(self, connection: Connection) -> _Outcome:
        bad, problems = self._quarantine(connection)
        job = self._job(connection)
        if job is None:
            return IngestReport(bad_lines=bad, problems=tuple(problems)), None
        lock(connection, job)
        events = [event for chunk in self.reads.values() for event in chunk.events]
        own = [event for event in events if event.job == job]
        new = insert_new(connection, tables.event, [_row(event) for event in own])
        if len(own) < len(events):
            foreign = len(events) - len(own)
            problems.append(f"{self.run.path}: {foreign} events of other jobs than {job}, skipped")
        failure = self._project(connection, job)
        if failure is None:
            self._remember(connection, job)
        jobs = (job,) if failure is None else ()
        return IngestReport(new, bad, jobs, tuple(problems)), failure

    def _project(self, connection: Connection, job: str) -> EventLogError | None:
        try:
            with connection.begin_nested():
                project(
                    connection,
                    job,
                    open_interval=self.cursor.open_interval(job) if self.cursor else None,
                    now_ns=time.time_ns(),
                    last_sign_ns=_heartbeat(self.run),
                )
        # Anybody may write a log: whatever its events do to the metric is this job's trouble alone.
        except Exception as error:
            if not is_about_values(error):
                raise
            failure = EventLogError(
                f"The events of job {job} in {self.run.path} are stored but cannot be measured: "
                f"{reason(error)}. The next ingest tries again."
            )
            failure.__cause__ = error
            return failure
        return None

    def _job(self, connection: Connection) -> str | None:
        known = select(tables.source.c.job).where(tables.source.c.path.in_(self.logs)).limit(1)
        stored: str | None = connection.scalar(known)
        first = (event.job for chunk in self.reads.values() for event in chunk.events)
        return stored or next(first, None)

    def _quarantine(self, connection: Connection) -> tuple[int, list[str]]:
        rows = [
            {"path": name, "offset": bad.offset, "problem": bad.problem}
            for name, chunk in self.reads.items()
            for bad in chunk.bad
        ]
        texts = [f"{r['path']}, byte {r['offset']}: {r['problem']}" for r in rows]
        return insert_new(connection, tables.quarantine, rows), texts

    def _remember(self, connection: Connection, job: str) -> None:
        if not self.reads:
            return
        source = tables.source
        connection.execute(delete(source).where(source.c.path.in_(list(self.reads))))
        rows = [
            {"path": name, "job": job, "offset": chunk.offset} for name, chunk in self.reads.items()
        ]
        connection.execute(insert(source), rows)


def _logs(run: RunDir) -> tuple[dict[str, Path], IngestReport]:
    """The logs by name, and a report of those whose file name is no text."""
    logs = {_name(run, path): path for path in run.logs()}
    odd = [name for name in logs if not name.isprintable()]
    problems = tuple(f"{run.path}: the file name {logs.pop(n).name!r} is no text" for n in odd)
    return logs, IngestReport(problems=problems)


def _read(
    logs: Mapping[str, Path], known: Mapping[str, Any]
) -> tuple[dict[str, Chunk], IngestReport]:
    """Read each log that has grown. One that has shrunk was replaced: from its begin again."""
    reads: dict[str, Chunk] = {}
    refused = 0
    problems: list[str] = []
    for name, path in logs.items():
        try:
            facts = path.lstat()
            start = known[name].offset if name in known else 0
            if not stat.S_ISREG(facts.st_mode) or facts.st_size == start:
                continue
            chunk = read_log(path, start if start < facts.st_size else 0)
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
            continue
        if chunk.events or chunk.bad:
            wrong = [(event, refusal(event)) for event in chunk.events]
            odd = [f"{name}, {e.writer:.40} event {e.seq}: {why}" for e, why in wrong if why]
            problems += odd
            refused += len(odd)
            reads[name] = replace(chunk, events=tuple(e for e, why in wrong if not why))
    return reads, IngestReport(bad_lines=refused, problems=tuple(problems))


def _known(connection: Connection, names: Iterable[str]) -> dict[str, Any]:
    rows = connection.execute(select(tables.source).where(tables.source.c.path.in_(list(names))))
    return {row.path: row for row in rows}


def _is_frozen(connection: Connection, known: Mapping[str, Any]) -> bool:
    jobs = {row.job for row in known.values()}
    frozen = select(tables.job.c.job).where(tables.job.c.job.in_(jobs), tables.job.c.frozen)
    return bool(jobs) and set(connection.scalars(frozen)) == jobs


def _name(run: RunDir, log: Path) -> str:
    """The log's path below the run root: the same wherever the root is mounted."""
    return "/".join((*run.path.parts[-_DEPTH:], *log.relative_to(run.path).parts))


def _cursor(run: RunDir) -> CursorRecord | None:
    try:
        return read_cursor(run.cursor) if stat.S_ISREG(run.cursor.lstat().st_mode) else None
    except OSError:
        return None


def _heartbeat(run: RunDir) -> int | None:
    if not run.nodes.is_dir() or run.nodes.is_symlink():
        return None
    return _newest(run.nodes.glob("heartbeat-*")) or None


def _newest(paths: Iterable[Path]) -> int:
    """The newest modification time; 0 without files."""
    newest = 0
    for path in paths:
        with suppress(OSError):
            newest = max(newest, path.lstat().st_mtime_ns)
    return newest


def _descend(folder: Path, depth: int) -> Iterator[Path]:
    if depth == 0:
        yield folder
        return
    try:
        children = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("ETT: cannot look for run directories in %s: %s", folder, error)
        return
    for child in children:
        yield from _descend(child, depth - 1)


def _row(event: Event) -> dict[str, Any]:
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
