"""One job's timeline, folded from its stored events: its spans, and how far its cursor came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, select

from airflow_ett.metric import Components, JobMetric
from airflow_ett.store import tables
from airflow_ett.store.append import open_interval_of
from airflow_ett.store.engine import Store
from airflow_ett.store.keptfolds import Kept, KeptFolds
from airflow_ett.store.pruned import lacks_events

_MOST_EVENTS = 300_000
"""In the folds that a process keeps beside those of the API: about 30 MB."""


class Timelines:
    """Measures jobs of a store for their timelines. One for a process; threads share it.

    A job is measured as of the moment at which its stored numbers were made, so that both tell of
    the same time. A look at one that was looked at before costs what is new of it.
    """

    def __init__(self, store: Store, components: Components) -> None:
        self._store = store
        self._folds = KeptFolds(components, _MOST_EVENTS)

    @contextmanager
    def look(self, job: str) -> Iterator[JobMetric | None]:
        """Measure a job; its spans and its progress can be read until the block ends.

        None where there is no such job, or none of whose raw events are there any more. Of a live
        job whose log the API holds the numbers may be some seconds newer than those stored: the
        trainer's cursor has moved since. That of a run directory is not in the database, so what
        its open interval tells is missing until it is closed, 10 s at most. Raises
        :class:`StoreError`.
        """
        with self._store.read() as connection:
            if not self._store.is_sqlite:
                # The job's row and its events are to be of one moment, as SQLite has it anyway.
                connection.execution_options(isolation_level="REPEATABLE READ")
            found = self._measure(connection, job)
        if found is None:
            yield None
            return
        kept, metric = found
        yield metric
        self._folds.keep(kept)

    def _measure(self, connection: Connection, job: str) -> tuple[Kept, JobMetric] | None:
        told = select(tables.job.c.end_ns, tables.job.c.frozen).where(tables.job.c.job == job)
        row = connection.execute(told).one_or_none()
        if row is None or lacks_events(connection, job):
            return None
        open_interval = None if row.frozen else open_interval_of(connection, job)
        kept = self._folds.up_to_date(connection, job, open_interval)
        if not kept.events:
            return None
        metric = kept.fold.measure(open_interval, now_ns=row.end_ns, last_sign_ns=row.end_ns)
        return kept, metric
