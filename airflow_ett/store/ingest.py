"""From the job logs into the database: incremental, idempotent, safe to run anywhere at once.

A line is read again after a crash, and by two ingests at the same time: ``(job, writer, seq)``
keeps one of it. A job's new events, how far its logs were read, and its projection are one
transaction under the job's lock. A projection that fails is undone alone: the events are kept, but
not how far the logs were read, so that the next ingest reads the same lines and tries again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, or_, select

from airflow_ett.errors import EventLogError
from airflow_ett.events import CursorRecord, decode_cursor
from airflow_ett.storage import Readable, is_folder, open_readable
from airflow_ett.store import tables
from airflow_ett.store.batch import Batch
from airflow_ett.store.engine import Store
from airflow_ett.store.folds import Folds
from airflow_ett.store.pruned import RUN_DIR_MARK, lacks_events
from airflow_ett.store.report import IngestReport
from airflow_ett.store.rundirs import find_logs, read_new, run_places
from airflow_ett.store.sources import find_sources

_AT_ONCE = 8
"""Places in an object store that are looked into at the same time: each waits for answers."""

_Outcome = tuple[IngestReport, EventLogError | None]
"""What an ingest of one run directory did, and why its job could not be measured, if so."""


def ingest_run_dir(store: Store, place: Path | str, folds: Folds | None = None) -> IngestReport:
    """Read what is new in the logs of one run directory and project its job.

    ``place`` is a folder, or the URI of one in an object store. ``folds`` are a watcher's own,
    where many watchers share a store; default: the store's.
    All lines must be of one job, that of the first event; others are reported and skipped. A
    corrupt line is quarantined with its place and stops nothing. Links are not followed.
    Raises :class:`StoreError` when the database fails, ``OSError`` when the directory cannot be
    looked into, and :class:`EventLogError` when the job's events cannot be measured; these are
    stored then, and the next ingest tries again.
    """
    report, failure = _ingest(store, open_readable(place), store.folds if folds is None else folds)
    if failure is not None:
        raise failure
    return report


def _ingest(store: Store, place: Readable, folds: Folds) -> _Outcome:
    cursor = _cursor(place)
    logs, nameless = find_logs(place)
    if not logs:
        return nameless, None
    with store.read() as connection:
        rows = find_sources(connection, logs)
        jobs = {row.job for row in rows}
        settled = _are_settled(connection, jobs, store.components.digest)
    if not rows and place.read(RUN_DIR_MARK) is not None:
        problem = f"{place.place} was pruned, and its job is not in this database: not measured"
        return nameless + IngestReport(problems=(problem,)), None
    offsets = {row.path: row.offset for row in rows}
    reads, noticed = read_new(place, logs, offsets)
    if reads and settled and _lack_events(store, jobs):
        # All of them are needed again, as far as they are still there.
        offsets = {}
        reads, noticed = read_new(place, logs, offsets)
    noticed += nameless
    if settled and not reads:
        return noticed, None
    heartbeat_ns = place.heartbeat_ns()
    batch = Batch(place, tuple(logs), offsets, reads, cursor, heartbeat_ns, store.components, folds)
    stored = store.write(batch.store)
    if stored.fold is not None:
        folds.keep(stored.fold)
    if stored.incomplete:
        problem = f"{place.place}: raw events of its job were pruned, so its numbers stay"
        noticed += IngestReport(problems=(problem,))
    return noticed + stored.report, stored.failure


def _cursor(place: Readable) -> CursorRecord | None:
    """Return where rank 0 stands, None where none can be read.

    It is read before the logs: an interval that the trainer closes in between is in both then, and
    counts once.
    """
    with suppress(OSError):
        return decode_cursor(place.read("cursor") or b"")
    return None


def _are_settled(connection: Connection, jobs: Collection[str], mapping: str) -> bool:
    """Say whether all these jobs, one at least, have ended and were measured with this mapping.

    One whose raw events were pruned stays measured as it was.
    """
    job = tables.job.c
    measured = or_(job.mapping == mapping, job.pruned_events.is_not(None))
    settled = select(job.job).where(job.job.in_(jobs), job.frozen, measured)
    return bool(jobs) and set(connection.scalars(settled)) == set(jobs)


def _lack_events(store: Store, jobs: Collection[str]) -> bool:
    with store.read() as connection:
        return any(lacks_events(connection, job) for job in jobs)


def ingest_root(
    store: Store, root: Path | str, deployment: str | None = None, since_ns: int | None = None
) -> IngestReport:
    """Ingest every run directory below ``root`` that has unread bytes or an unfinished job.

    ``root`` is a folder, or the URI of one in an object store. ``deployment`` keeps to that
    deployment's jobs, ``since_ns`` to directories with a log written since then. A directory that
    cannot be ingested is reported and does not stop the others; so is a root that does not answer.
    Raises :class:`StoreError` when the database fails.
    """
    try:
        places = run_places(root, deployment)
    except OSError as error:
        return IngestReport(problems=(f"{root}: {error}",))
    if is_folder(root):
        return _sum(_reported(store, place, since_ns, store.folds) for place in places)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            return _sum(pool.map(lambda p: _reported(store, p, since_ns, Folds()), places))
        finally:
            pool.shutdown(cancel_futures=True)


def _reported(store: Store, place: str, since_ns: int | None, folds: Folds) -> IngestReport:
    """Ingest one place of many; what is wrong with it is told in the report."""
    try:
        readable = open_readable(place)
        if since_ns is not None and (readable.logged_ns() or 0) < since_ns:
            return IngestReport()
        report, failure = _ingest(store, readable, folds)
    except (EventLogError, OSError) as error:
        return IngestReport(problems=(f"{place}: {error}",))
    return report + IngestReport(problems=() if failure is None else (str(failure),))


def _sum(reports: Iterable[IngestReport]) -> IngestReport:
    return sum(reports, IngestReport())
