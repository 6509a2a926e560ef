"""Sums over the jobs that ended in a period of whole days.

They come from the rollup, except for days that a job has joined, left or changed in since it was
made: these are added up from the jobs themselves. So they are what the rollup would say if it were
made now, and cost little as long as it is made often.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Connection, Text, cast, func, select

from airflow_ett.store import tables
from airflow_ett.store.days import bounds, day_of
from airflow_ett.store.engine import Store
from airflow_ett.store.scope import Dags
from airflow_ett.store.sums import COLUMNS, MEASURES, TOTALS, Sums

_MOST_CHANGED = 20_000
"""Of more jobs that the rollup doesn't know the days are not asked: the whole period counts."""

_DAG = ("deployment", "dag_id")
_NUMBERS = (*TOTALS, *MEASURES)
_LOW_BITS = 32
_LOW = 2**_LOW_BITS - 1


@dataclass(frozen=True, slots=True)
class Period:
    """Whole days (ISO 8601) in a time zone, the last included."""

    first: str
    last: str
    zone: ZoneInfo

    @property
    def ends_ns(self) -> tuple[int, int]:
        """Its first and its last instant in UTC nanoseconds."""
        return bounds(self.first, self.zone)[0], bounds(self.last, self.zone)[1]


def total(store: Store, period: Period, dags: Dags) -> Sums:
    """Return the sums over all of the DAGs."""
    return _sums(store, period, dags, by=()).get((), Sums())


def by_dag(store: Store, period: Period, dags: Dags) -> dict[tuple[str, str], Sums]:
    """Return the sums by deployment and DAG."""
    found = _sums(store, period, dags, by=_DAG)
    return {(deployment, dag_id): sums for (deployment, dag_id), sums in found.items()}


def by_day(store: Store, period: Period, dags: Dags) -> dict[str, Sums]:
    """Return the sums over all of the DAGs by day; a day on which no job ended is left out."""
    return {day: sums for (day,), sums in _sums(store, period, dags, by=("day",)).items()}


def by_dag_and_day(
    store: Store, period: Period, dags: Dags
) -> dict[tuple[str, str], dict[str, Sums]]:
    """Return the sums by deployment and DAG, and of each by day."""
    found: dict[tuple[str, str], dict[str, Sums]] = defaultdict(dict)
    for (deployment, dag_id, day), sums in _sums(store, period, dags, by=(*_DAG, "day")).items():
        found[deployment, dag_id][day] = sums
    return dict(found)


def last_end(store: Store, dags: Dags) -> int | None:
    """Return when the last of the jobs ended, in UTC nanoseconds; None where none has."""
    job = tables.job.c
    ended = (job.frozen, *dags.conditions(store, tables.job))
    with store.read() as connection:
        found: int | None = connection.scalar(select(func.max(job.end_ns)).where(*ended))
        return found


def has_rollup(store: Store) -> bool:
    """Return whether the rollup has any day, of whatever DAG."""
    with store.read() as connection:
        return connection.scalar(select(tables.rollup.c.day).limit(1)) is not None


def running(store: Store, dags: Dags) -> dict[tuple[str, str], int]:
    """Return how many jobs have not ended, by deployment and DAG."""
    job = tables.job.c
    query = select(job.deployment, job.dag_id, func.count())
    query = query.where(~job.frozen, *dags.conditions(store, tables.job))
    with store.read() as connection:
        rows = connection.execute(query.group_by(job.deployment, job.dag_id))
        return {(deployment, dag_id): count for deployment, dag_id, count in rows}


def known_dags(store: Store) -> list[str]:
    """Return the DAGs that have jobs in any deployment, by name; a probe of the index for each."""
    job = tables.job.c.dag_id
    found = select(func.min(job).label("dag_id")).cte("found", recursive=True)
    following = select(func.min(job)).where(job > found.c.dag_id).scalar_subquery()
    found = found.union_all(select(following).where(found.c.dag_id.is_not(None)))
    with store.read() as connection:
        query = select(found.c.dag_id).where(found.c.dag_id.is_not(None))
        return list(connection.scalars(query))


def _sums(
    store: Store, period: Period, dags: Dags, by: tuple[str, ...]
) -> dict[tuple[str, ...], Sums]:
    found: dict[tuple[str, ...], Sums] = defaultdict(Sums)
    with store.read() as connection:
        changed = _changed_days(connection, store, period, dags)
        if changed is None:
            stretches = [period.ends_ns]
        else:
            for key, sums in _booked(connection, store, period, dags, by, changed):
                found[key].add(sums)
            stretches = list(_stretches(changed, period.zone))
        for begin_ns, end_ns in stretches:
            for deployment, dag_id, end, *job in _ended(connection, store, dags, begin_ns, end_ns):
                found[_key(by, deployment, dag_id, end, period.zone)].add_job(*job)
    return found


def _key(
    by: tuple[str, ...], deployment: str, dag_id: str, end_ns: int, zone: ZoneInfo
) -> tuple[str, ...]:
    """Return a job's group; ``by`` is none, some or all of DAG and day, in this order."""
    dag = (deployment, dag_id) if by[:2] == _DAG else ()
    return (*dag, day_of(end_ns, zone)) if "day" in by else dag


def _changed_days(
    connection: Connection, store: Store, period: Period, dags: Dags
) -> set[str] | None:
    """Return the period's days of which the rollup is not up to date; None: all of them."""
    zone = connection.scalar(select(tables.rollup.c.timezone).limit(1))
    if zone != period.zone.key:
        return None
    job = tables.job.c
    query = select(job.frozen, job.end_ns, job.rolled_up_day)
    query = query.where(job.rolled_up.is_(False), *dags.conditions(store, tables.job))
    rows = connection.execute(query.limit(_MOST_CHANGED + 1)).all()
    if len(rows) > _MOST_CHANGED:
        return None
    days = {day_of(row.end_ns, period.zone) for row in rows if row.frozen}
    days |= {row.rolled_up_day for row in rows if row.rolled_up_day}
    return {day for day in days if period.first <= day <= period.last}


def _booked(
    connection: Connection,
    store: Store,
    period: Period,
    dags: Dags,
    by: tuple[str, ...],
    changed: Collection[str],
) -> Iterator[tuple[tuple[str, ...], Sums]]:
    """Yield what the rollup says of the period without the ``changed`` days."""
    rollup = tables.rollup.c
    query = select(
        *(rollup[name] for name in by),
        *(part for name in _NUMBERS for part in _summed(store, name)),
        func.aggregate_strings(cast(rollup.failures, Text), "\n").label("failures"),
    ).where(rollup.day.between(period.first, period.last), *dags.conditions(store, tables.rollup))
    if changed:
        query = query.where(rollup.day.not_in(changed))
    for row in connection.execute(query.group_by(*(rollup[name] for name in by))).mappings():
        if row["jobs"] is None:
            continue  # the one group of no rows
        sums = Sums()
        for name in _NUMBERS:
            high = row[f"{name}_high"] << _LOW_BITS if store.is_sqlite else 0
            sums.numbers[name] = high + int(row[name])
        # Most days failed in one of few ways, and JSON has no bare line break.
        for text, days in Counter(row["failures"].split("\n")).items():
            for cause, count in json.loads(text).items():
                sums.failures[cause] += days * count
        yield tuple(row[name] for name in by), sums


def _summed(store: Store, name: str) -> list[ColumnElement[Any]]:
    """Return the sum of a number as columns: in SQLite, which refuses one beyond 64 bits, its high
    and its low half."""
    number = tables.rollup.c[name]
    if not store.is_sqlite:
        return [func.sum(number).label(name)]
    halves = {f"{name}_high": number.bitwise_rshift(_LOW_BITS), name: number.bitwise_and(_LOW)}
    return [func.sum(half).label(label) for label, half in halves.items()]


def _ended(
    connection: Connection, store: Store, dags: Dags, begin_ns: int, end_ns: int
) -> Iterable[Any]:
    job = tables.job.c
    query = select(job.deployment, job.dag_id, job.end_ns, *(job[name] for name in COLUMNS))
    ended = (job.frozen, job.end_ns.between(begin_ns, end_ns))
    return connection.execute(query.where(*ended, *dags.conditions(store, tables.job)))


def _stretches(days: Collection[str], zone: ZoneInfo) -> Iterator[tuple[int, int]]:
    """Yield the first and the last instant of each row of days that follow one another."""
    ordered = sorted(date.fromisoformat(day) for day in days)
    begin = 0
    for number, day in enumerate(ordered, 1):
        if number == len(ordered) or ordered[number] != day + timedelta(days=1):
            yield bounds(ordered[begin].isoformat(), zone)[0], bounds(day.isoformat(), zone)[1]
            begin = number
