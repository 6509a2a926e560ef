"""Pruning raw events, and the lines that were none, of jobs that ended long ago.

A job's numbers stay, and so does how far its logs were read. Where the API holds the log, what its
launchers wrote stays too (it says that the job is over), and nothing goes that was not exported.
Each job is one transaction under its lock, in which everything is looked at once more: whatever is
killed or runs beside it, a job has all its events or is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
    cast,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from airflow_ett.storage.access import LAUNCHER_WRITERS
from airflow_ett.store import tables
from airflow_ett.store.engine import Store, lock

_EVENT_BYTES = 100
"""What an event takes beside its data, about."""

_T = TypeVar("_T")
_TRAINERS = ("nodes", "replies")
_event, _job = tables.event.c, tables.job.c


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed of a kind, or would be: ``bytes`` is about, ``oldest_ns`` in UTC ns.

    ``kept`` tells in sentences what had to stay although it is old enough, and why.
    """

    what: str
    count: int = 0
    bytes: int = 0
    oldest_ns: int | None = None
    kept: tuple[str, ...] = ()

    def __add__(self, other: Pruned) -> Pruned:
        ages = [age for age in (self.oldest_ns, other.oldest_ns) if age is not None]
        return Pruned(
            self.what,
            self.count + other.count,
            self.bytes + other.bytes,
            min(ages, default=None),
            self.kept + other.kept,
        )


def prune_events(store: Store, before_ns: int, *, dry_run: bool) -> Pruned:
    """Remove the raw events of frozen jobs whose newest one is older than ``before_ns``.

    Raises :class:`StoreError`.
    """
    total, waiting = Pruned("events"), []
    for job in _ended(store, before_ns):
        found = _prune_job(store, job, before_ns, dry_run=dry_run)
        if found is None:
            waiting.append(job)
        else:
            total += found
    if waiting:
        note = (
            f"raw events of {len(waiting)} jobs, such as {waiting[0]}: the API holds their logs; "
            "run `airflow-ett db export FOLDER` first"
        )
        total += Pruned("events", kept=(note,))
    return total


def prune_quarantine(store: Store, before_ns: int, *, dry_run: bool) -> Pruned:
    """Remove the quarantined lines of frozen jobs that ended before ``before_ns``."""
    line, source = tables.quarantine.c, tables.source.c
    of_job = (source.path == line.path, _job.job == source.job)
    old = exists().where(*of_job, _job.frozen, _job.end_ns < before_ns)

    def work(connection: Connection) -> Pruned:
        size = func.sum(func.length(line.problem) + func.length(line.path))
        count, bytes_ = connection.execute(select(func.count(), size).where(old)).one()
        oldest = select(func.min(_job.end_ns)).where(*of_job, _job.end_ns < before_ns, _job.frozen)
        oldest_ns = connection.scalar(oldest)
        if not dry_run:
            connection.execute(delete(tables.quarantine).where(old))
        return Pruned("bad lines", count, int(bytes_ or 0), oldest_ns)

    return _run(store, work, dry_run=dry_run)


def prune_files(store: Store, before_ns: int, *, dry_run: bool) -> Pruned:
    """Remove what trainers have left in the API of jobs whose newest event is that old.

    What launchers have written there stays: it says that the job is over, as do its generations.
    """
    file = tables.file.c
    by_trainers = or_(*(file.name.startswith(f"{folder}/") for folder in _TRAINERS))
    newest = select(func.max(_event.time_ns)).where(_event.job == _job.job).scalar_subquery()
    over = exists().where(
        *(_job.job == file.job, _job.frozen, _job.end_ns < before_ns),
        func.coalesce(newest, 0) < before_ns,
    )

    def work(connection: Connection) -> Pruned:
        size, oldest = func.sum(func.length(file.content)), func.min(file.time_ns)
        query = select(func.count(), size, oldest).where(by_trainers, over)
        count, bytes_, oldest_ns = connection.execute(query).one()
        if count and not dry_run:
            connection.execute(delete(tables.file).where(by_trainers, over))
        return Pruned("files in the API", count, int(bytes_ or 0), oldest_ns)

    return _run(store, work, dry_run=dry_run)


def newest_event_ns(connection: Connection, job: str) -> int | None:
    """Return the time of a job's newest stored event, None without any."""
    query = select(func.max(_event.time_ns)).where(_event.job == job)
    newest: int | None = connection.scalar(query)
    return newest


def _ended(store: Store, before_ns: int) -> Iterator[str]:
    any_left = exists().where(_event.job == _job.job)
    old = select(_job.job).where(_job.frozen, _job.end_ns < before_ns, any_left)
    with store.read() as connection:
        jobs = list(connection.scalars(old.order_by(_job.end_ns)))
    return iter(jobs)


def _prune_job(store: Store, job: str, before_ns: int, *, dry_run: bool) -> Pruned | None:
    """Prune one job; None where the database alone holds its events, or some of them."""

    def work(connection: Connection) -> Pruned | None:
        lock(connection, job)
        state = select(_job.frozen, _job.exported_events, _job.pruned_events)
        row = connection.execute(state.where(_job.job == job)).one_or_none()
        stored, newest_ns = connection.execute(
            select(func.count(), func.max(_event.time_ns)).where(_event.job == job)
        ).one()
        if row is None or not row.frozen or not stored or newest_ns >= before_ns:
            return Pruned("events")
        old: list[ColumnElement[bool]] = [_event.job == job]
        held = is_held(connection, job)
        if held:
            old.append(~or_(*(_event.writer.startswith(name) for name in LAUNCHER_WRITERS)))
        found = _found(connection, old)
        if found.count and held and row.exported_events != stored:
            return None
        if found.count and not dry_run:
            connection.execute(delete(tables.event).where(*old))
            whole = {"pruned_events": max(stored, row.pruned_events or 0)}
            connection.execute(update(tables.job).where(_job.job == job).values(whole))
        return found

    return _run(store, work, dry_run=dry_run)


def is_held(connection: Connection, job: str) -> bool:
    """Say whether the API holds a job's log, so that its events are nowhere else."""
    file = tables.file.c
    claims = select(file.name).where(file.job == job, file.name.startswith("launcher/claims/"))
    return connection.scalar(claims.limit(1)) is not None


def _found(connection: Connection, old: list[ColumnElement[bool]]) -> Pruned:
    size: Any = func.sum(func.length(cast(_event.data, Text)) + _EVENT_BYTES)
    query = select(func.count(), size, func.min(_event.time_ns)).where(*old)
    count, bytes_, oldest_ns = connection.execute(query).one()
    return Pruned("events", count, int(bytes_ or 0), oldest_ns)


def _run(store: Store, work: Callable[[Connection], _T], *, dry_run: bool) -> _T:
    if dry_run:
        with store.read() as connection:
            return work(connection)
    return store.write(work)
