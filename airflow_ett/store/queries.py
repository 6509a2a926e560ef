"""The questions that the pages, the CLI and the demo ask. All raise :class:`StoreError`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from airflow_ett.events import AttemptId
from airflow_ett.store import tables
from airflow_ett.store.engine import Store

_COLUMNS = (
    *("job", "deployment", "dag_id", "run_id", "task_id", "map_index", "generation"),
    *("state", "quality", "frozen", "begin_ns", "end_ns", "wall_ns", "held_ns", "effective_ns"),
    *("ett_pct", "tts_ns", "nof", "accelerators", "revision", "updated_ns", "result"),
)


_HOUR_NS = 3_600 * 10**9


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. ``result`` is all that the metric says of it: ``JobMetric.as_dict()``.

    ``revision`` counts from 1 and grows when the numbers of a job that had ended change;
    ``updated_ns`` is when these numbers were made. ``result`` holds them, too, as ``revision`` and
    ``revised_ns``.
    """

    job: str
    deployment: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    generation: int
    state: str
    quality: str
    frozen: bool
    begin_ns: int
    end_ns: int
    wall_ns: int
    held_ns: int
    effective_ns: int
    ett_pct: float | None
    tts_ns: int | None
    nof: int
    accelerators: int
    revision: int
    updated_ns: int
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """How long an attempt of a job spent in a phase."""

    attempt: AttemptId
    phase: str
    component: str
    ns: int


def jobs(
    store: Store,
    *,
    dag_ids: Collection[str] | None = None,
    run_id: str | None = None,
    task_id: str | None = None,
    since_ns: int | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Return jobs, newest first.

    ``dag_ids`` None means every DAG, an empty collection none; ``since_ns`` keeps the jobs that
    began then or later.
    """
    job = tables.job.c
    query = select(*(job[name] for name in _COLUMNS)).order_by(job.begin_ns.desc(), job.job)
    if dag_ids is not None:
        query = query.where(job.dag_id.in_(list(dag_ids)))
    if run_id is not None:
        query = query.where(job.run_id == run_id)
    if task_id is not None:
        query = query.where(job.task_id == task_id)
    if since_ns is not None:
        query = query.where(job.begin_ns >= since_ns)
    if limit is not None:
        query = query.limit(limit)
    with store.read() as connection:
        rows = [JobRow(*row) for row in connection.execute(query)]
    for row in rows:
        row.result.update(revision=row.revision, revised_ns=row.updated_ns)
    return rows


def dag_task_ids(store: Store, dag_id: str) -> list[str]:
    """Return the tasks of a DAG that have trained, in alphabetical order."""
    task = tables.job.c.task_id
    query = select(task).where(tables.job.c.dag_id == dag_id).distinct().order_by(task)
    with store.read() as connection:
        return list(connection.scalars(query))


def failures_per_hour(store: Store, deployment: str, dag_id: str, *, since_ns: int) -> float:
    """Return how often a DAG's trainings that began since then were interrupted (NoF per hour).

    One failure in a day is taken for granted besides, so that little history weighs little.
    """
    job = tables.job.c
    query = select(func.coalesce(func.sum(job.nof), 0), func.coalesce(func.sum(job.wall_ns), 0))
    query = query.where(
        job.deployment == deployment, job.dag_id == dag_id, job.begin_ns >= since_ns
    )
    with store.read() as connection:
        failures, wall_ns = connection.execute(query).one()
    return (int(failures) + 1) / (int(wall_ns) / _HOUR_NS + 24)


def phases(store: Store, job: str) -> list[PhaseRow]:
    """Return the lifecycle timings of a job, by attempt and phase; they sum to its wall clock."""
    phase = tables.phase.c
    attempt = (phase.submission, phase.scheduler_restart, phase.elastic_restart)
    query = (
        select(*attempt, phase.phase, phase.component, phase.ns)
        .where(phase.job == job)
        .order_by(*attempt, phase.phase)
    )
    with store.read() as connection:
        rows = connection.execute(query).all()
    return [PhaseRow(AttemptId(*row[:3]), row.phase, row.component, row.ns) for row in rows]
