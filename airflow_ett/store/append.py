"""Events of jobs whose log the API holds: stored first, then measured.

An answer means that the events are committed. Measuring follows in a transaction of its own, under
the job's lock: whatever it comes to, the events stay. Of the threads that append to a job while
another one measures it, one measures next, and by then it has the events of all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from airflow_ett.errors import EventLogError, StoreError
from airflow_ett.events import Event, decode_cursor
from airflow_ett.store import files, tables
from airflow_ett.store.batch import event_row
from airflow_ett.store.engine import Store, insert_new, lock, reason
from airflow_ett.store.keptfolds import Kept, KeptFolds
from airflow_ett.store.project import project
from airflow_ett.store.pruned import lacks_events

_EVERY_S = 10.0
_MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Appended:
    """How many events were new, how many known; why their job cannot be measured, if so."""

    new: int
    known: int
    failure: EventLogError | None = None


class _Turn:
    """Whose turn it is to measure a job: one thread's, and then that of one that awaits it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.awaited = False
        self.threads = 0


class Appender:
    """Stores events and measures their jobs. One for a process; threads share it."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._folds = KeptFolds(store.components)
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}
        self._measured: dict[str, float] = {}

    def append(self, job: str, events: Sequence[Event]) -> Appended:
        """Store the events of a job and measure it. Harmless to repeat.

        Raises :class:`StoreError` when the database fails, :class:`EventLogError` when it takes one
        of them not; nothing is stored then.
        """
        # Two that insert the same rows must meet them in one order.
        ordered = sorted(events, key=lambda event: (event.writer, event.seq))
        rows = [event_row(event) for event in ordered]
        new = self._store.write(lambda connection: insert_new(connection, tables.event, rows))
        return Appended(new, len(rows) - new, self.measure(job))

    def refresh(self, job: str) -> None:
        """Measure a job that goes on, as its trainer's cursor and heartbeat now say.

        Nothing happens where that was done within the last 10 s, and nothing to a job that nobody
        knows or that has ended. Raises :class:`StoreError`.
        """
        if self._clock() < self._measured.get(job, float("-inf")) + _EVERY_S:
            return
        with self._store.read() as connection:
            ended = connection.scalar(select(tables.job.c.frozen).where(tables.job.c.job == job))
        self._note(job)
        if ended is False:
            self.measure(job)

    def measure(self, job: str) -> EventLogError | None:
        """Replace what is said of a job; return why that cannot be done, if so.

        It is left to the thread that awaits its turn to do so, where there is one. Raises
        :class:`StoreError`.
        """
        with self._lock:
            turn = self._turns.setdefault(job, _Turn())
            if turn.awaited:
                return None
            turn.awaited = True
            turn.threads += 1
        try:
            with turn.lock:
                turn.awaited = False
                return self._measure(job)
        finally:
            with self._lock:
                turn.threads -= 1
                if not turn.threads:
                    del self._turns[job]

    def _measure(self, job: str) -> EventLogError | None:
        self._note(job)
        try:
            kept = self._store.write(lambda connection: self._project(connection, job))
        except StoreError:
            raise
        except Exception as error:  # whatever a job's events do is this job's trouble alone
            failure = EventLogError(
                f"The events of job {job} are stored but cannot be measured: {reason(error)}. "
                "The next ones have it tried again."
            )
            failure.__cause__ = error
            return failure
        if kept is not None:
            self._folds.keep(kept)
        return None

    def _project(self, connection: Connection, job: str) -> Kept | None:
        """Measure the job and replace its rows; return its fold unless it has ended.

        A job whose events were pruned keeps its rows.
        """
        lock(connection, job)
        if lacks_events(connection, job):
            return None
        open_interval = open_interval_of(connection, job)
        kept = self._folds.up_to_date(connection, job, open_interval)
        now_ns = int(connection.scalar(select(files.clock(connection))) or 0)
        sign_ns = files.newest_ns(connection, job, "nodes/heartbeat-")
        metric = kept.fold.measure(open_interval, now_ns=now_ns, last_sign_ns=sign_ns)
        project(connection, job, metric, kept.fold.submitted, self._store.components, now_ns=now_ns)
        return None if metric.frozen else kept

    def _note(self, job: str) -> None:
        with self._lock:
            self._measured.pop(job, None)
            self._measured[job] = self._clock()
            while len(self._measured) > _MOST_JOBS:
                del self._measured[next(iter(self._measured))]


def open_interval_of(connection: Connection, job: str) -> Event | None:
    """Return what the trainer has not closed yet: measured with, never stored."""
    content = files.stored(connection, job, "cursor")
    record = decode_cursor(content) if content else None
    found = record.open_interval(job) if record else None
    if found is None:
        return None
    event = tables.event.c
    same = (event.job == job, event.writer == found.writer, event.seq == found.seq)
    return None if connection.scalar(select(event.seq).where(*same)) is not None else found
