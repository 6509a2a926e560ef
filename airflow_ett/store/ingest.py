"""From the job logs into the database: incremental, idempotent, safe to run anywhere at once.

A line is read again after a crash, and by two ingests at the same time: ``(job, writer, seq)``
keeps one of it. A job's new events, how far its logs were read, and its projection are one
transaction under the job's lock. A projection that fails is undone alone: the events are kept, but
not how far the logs were read, so that the next ingest reads the same lines and tries again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import Connection, select

from airflow_ett.errors import EventLogError
from airflow_ett.events import RunDir
from airflow_ett.store import tables
from airflow_ett.store.batch import Batch
from airflow_ett.store.engine import Store
from airflow_ett.store.folds import Folds
from airflow_ett.store.report import IngestReport
from airflow_ett.store.rundirs import find_logs, read_new, run_dirs

_Outcome = tuple[IngestReport, EventLogError | None]
"""What an ingest of one run directory did, and why its job could not be measured, if so."""


def ingest_run_dir(store: Store, run_dir: Path, folds: Folds | None = None) -> IngestReport:
    """Read what is new in the logs of one run directory and project its job.

    ``folds`` are a watcher's own, where many watchers share a store; default: the store's.
    All lines must be of one job, that of the first event; others are reported and skipped. A
    corrupt line is quarantined with its place and stops nothing. Links are not followed.
    Raises :class:`StoreError` when the database fails, ``OSError`` when the directory cannot be
    looked into, and :class:`EventLogError` when the job's events cannot be measured; these are
    stored then, and the next ingest tries again.
    """
    report, failure = _ingest(store, run_dir, store.folds if folds is None else folds)
    if failure is not None:
        raise failure
    return report


def _ingest(store: Store, run_dir: Path, folds: Folds) -> _Outcome:
    run = RunDir(run_dir.absolute())
    cursor = run.last_cursor()
    logs, nameless = find_logs(run)
    source = tables.source
    with store.read() as connection:
        rows = connection.execute(select(source).where(source.c.path.in_(list(logs)))).all()
        settled = _are_settled(connection, {row.job for row in rows}, store.components.digest)
    offsets = {row.path: row.offset for row in rows}
    reads, noticed = read_new(logs, offsets)
    noticed += nameless
    if settled and not reads:
        return noticed, None
    batch = Batch(run, tuple(logs), offsets, reads, cursor, store.components, folds)
    stored = store.write(batch.store)
    if stored.fold is not None:
        folds.keep(stored.fold)
    return noticed + stored.report, stored.failure


def _are_settled(connection: Connection, jobs: Collection[str], mapping: str) -> bool:
    """Say whether all these jobs, one at least, have ended and were measured with this mapping."""
    job = tables.job.c
    settled = select(job.job).where(job.job.in_(jobs), job.frozen, job.mapping == mapping)
    return bool(jobs) and set(connection.scalars(settled)) == set(jobs)


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
            if since_ns is None or (RunDir(folder).logged_ns() or 0) >= since_ns:
                report, failure = _ingest(store, folder, store.folds)
                problems = () if failure is None else (str(failure),)
                total += report + IngestReport(problems=problems)
        except (EventLogError, OSError) as error:
            total += IngestReport(problems=(f"{folder}: {error}",))
    return total
