"""Making the projection again: from run directories and exports, and from stored events alone.

First each job is marked. Then its logs are read from their begin and its rows replaced; the mark
goes with the transaction that measures the job. So a rebuild that was interrupted can go on with
the jobs that are left, and any other ingest helps meanwhile. Numbers that come out the same stay
the same revision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, func, literal, select, update

from airflow_ett.errors import EventLogError
from airflow_ett.storage import open_readable
from airflow_ett.store import tables
from airflow_ett.store.append import Appender
from airflow_ett.store.engine import Store
from airflow_ett.store.folds import Folds
from airflow_ett.store.ingest import ingest_run_dir
from airflow_ett.store.pruned import RUN_DIR_MARK, count_events, lacks_events
from airflow_ett.store.rundirs import find_logs, run_places
from airflow_ett.store.sources import find_sources, forget_sources

_MARK = "rebuild:"
"""Before a job's ``mapping``: no components' digest any more, so the job counts as not measured."""

_job = tables.job.c


@dataclass(slots=True)
class Rebuilt:
    """How many jobs were made from logs, from stored events alone, and kept as they were.

    ``problems`` tells, as an ingest does, what is wrong and where.
    """

    from_logs: int = 0
    from_events: int = 0
    kept: int = 0
    problems: list[str] = field(default_factory=list)


def rebuild(
    store: Store,
    roots: Sequence[Path | str],
    *,
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Rebuilt:
    """Make the rows of all jobs again from what lies below ``roots``, else from their events.

    ``resume`` goes on with an interrupted rebuild. Jobs with neither, such as those whose raw
    events were pruned, keep their rows. ``progress`` is told how many of all places are done.
    Raises :class:`StoreError`, and ``OSError`` where an object store does not answer.
    """
    if not resume:
        store.write(_mark)
    done = Rebuilt()
    places = [place for root in roots for place in run_places(root)]
    for number, place in enumerate(places):
        progress(number, len(places))
        _from_logs(store, place, done)
    progress(len(places), len(places))
    measuring = Appender(store)
    for job in _marked(store):
        _from_events(store, measuring, job, done)
    store.write(_unmark)
    return done


def _mark(connection: Connection) -> None:
    marked = literal(_MARK).concat(func.coalesce(_job.mapping, ""))
    connection.execute(update(tables.job).values(rolled_up=False))
    connection.execute(
        update(tables.job)
        .where(~func.coalesce(_job.mapping, "").startswith(_MARK))
        .values(mapping=marked)
    )


def _unmark(connection: Connection) -> None:
    """Give those that stay as they were their mapping back."""
    former = func.nullif(func.substr(_job.mapping, len(_MARK) + 1), "")
    connection.execute(
        update(tables.job).where(_job.mapping.startswith(_MARK)).values(mapping=former)
    )


def _marked(store: Store) -> list[str]:
    with store.read() as connection:
        return list(connection.scalars(select(_job.job).where(_job.mapping.startswith(_MARK))))


def _from_logs(store: Store, place: str, done: Rebuilt) -> None:
    try:
        if not _is_forgotten(store, place):
            return
        report = ingest_run_dir(store, place, Folds())
    except (EventLogError, OSError) as error:
        done.problems.append(f"{place}: {error}")
    else:
        done.from_logs += len(report.jobs)
        done.problems += report.problems


def _is_forgotten(store: Store, place: str) -> bool:
    """Forget how far a place's logs were read; False where it is done or they are not whole."""
    opened = open_readable(place)
    paths = list(find_logs(opened)[0])
    whole = opened.read(RUN_DIR_MARK) is None

    def work(connection: Connection) -> bool:
        jobs = {source.job for source in find_sources(connection, paths)}
        known = select(_job.job).where(_job.job.in_(jobs), ~_job.mapping.startswith(_MARK))
        if jobs and (not whole or connection.scalar(known.limit(1)) is not None):
            return False
        forget_sources(connection, paths)
        return True

    return store.write(work)


def _from_events(store: Store, measuring: Appender, job: str, done: Rebuilt) -> None:
    with store.read() as connection:
        gone = not count_events(connection, job) or lacks_events(connection, job)
    failure = None if gone else measuring.measure(job)
    if failure is not None:
        done.problems.append(str(failure))
    if gone or failure is not None:
        done.kept += 1
    else:
        done.from_events += 1
