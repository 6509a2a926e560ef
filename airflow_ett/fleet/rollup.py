"""Sums per day, deployment and DAG: what the fleet's numbers are made of.

A finished job is booked, whole, to the day on which it ended, in one configured time zone; a live
job is booked nowhere yet. All measures are additive integers: the fleet is the sum of the rows that
a reader may see.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from airflow_ett.errors import ConfigurationError
from airflow_ett.store import Store, tables
from airflow_ett.store.days import bounds, day_of
from airflow_ett.store.engine import lock
from airflow_ett.store.storable import row_of
from airflow_ett.store.sums import COLUMNS, Sums

_COUNTED = ("components_ns", "accelerator_ns")


def roll_up(store: Store, *, timezone: str) -> int:
    """Make the sums of each day that a job has joined or left since the last time.

    Returns how many days. Idempotent; another ``timezone`` (an IANA name) than last time makes all
    days again.
    Raises :class:`ConfigurationError` for an unknown zone and :class:`StoreError`.
    """
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, OSError, ValueError) as error:
        raise ConfigurationError("[ett] timezone", f"unknown time zone {timezone!r}") from error
    return store.write(lambda connection: _roll_up(connection, zone))


def _roll_up(connection: Connection, zone: ZoneInfo) -> int:
    lock(connection, "ett rollup")
    _forget_other_zones(connection, zone)
    job = tables.job.c
    changed = connection.execute(
        select(job.job, job.frozen, job.end_ns, job.rolled_up_day)
        .where(job.rolled_up.is_(False))
        .with_for_update()
    ).all()
    booked = {row.job: day_of(row.end_ns, zone) if row.frozen else None for row in changed}
    days = {day for row in changed for day in (booked[row.job], row.rolled_up_day) if day}
    for day in sorted(days):
        _make_day(connection, day, zone)
    if changed:
        connection.execute(
            update(tables.job).where(job.job == bindparam("id")),
            [{"id": id_, "rolled_up": True, "rolled_up_day": day} for id_, day in booked.items()],
        )
    return len(days)


def _forget_other_zones(connection: Connection, zone: ZoneInfo) -> None:
    others = tables.rollup.c.timezone != zone.key
    if connection.scalar(select(tables.rollup.c.day).where(others).limit(1)) is not None:
        connection.execute(delete(tables.rollup))
        connection.execute(update(tables.job).values(rolled_up=False, rolled_up_day=None))


def _make_day(connection: Connection, day: str, zone: ZoneInfo) -> None:
    job = tables.job.c
    begin, end = bounds(day, zone)
    columns = (job.deployment, job.dag_id, *(job[name] for name in COLUMNS))
    rows = connection.execute(select(*columns).where(job.frozen, job.end_ns.between(begin, end)))
    sums = _sum(row._mapping for row in rows)
    connection.execute(delete(tables.rollup).where(tables.rollup.c.day == day))
    if sums:
        connection.execute(
            insert(tables.rollup),
            [row_of(tables.rollup, {"day": day, "timezone": zone.key, **s}) for s in sums],
        )


def _sum(jobs: Iterable[Mapping[Any, Any]]) -> Collection[dict[str, Any]]:
    """Add jobs up by deployment and DAG.

    ``accelerator_ns`` weighs ``wall``, ``held`` and ``effective`` with each job's accelerators;
    it is kept with the counts since a large fleet's sums pass 64 bits.
    """
    sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
    counts: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    for job in jobs:
        key = (job["deployment"], job["dag_id"])
        sums[key].add_job(*(job[name] for name in COLUMNS))
        count = counts.setdefault(key, {name: Counter() for name in _COUNTED})
        count["components_ns"].update(job["components_ns"])
        for measure in ("wall", "held", "effective"):
            count["accelerator_ns"][measure] += job["accelerators"] * job[f"{measure}_ns"]
    return [
        {"deployment": deployment, "dag_id": dag_id, **sums[deployment, dag_id].row()}
        | {name: dict(counter) for name, counter in counts[deployment, dag_id].items()}
        for deployment, dag_id in sorted(sums)
    ]
