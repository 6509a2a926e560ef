"""The questions that the pages, the API, the CLI and the demo ask; all raise :class:`StoreError`.

Sums over a period are those of :mod:`airflow_ett.store.periods`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import JSON, ColumnElement, Table, and_, column, func, or_, select, tuple_

from airflow_ett.events import AttemptId, Event
from airflow_ett.store import tables
from airflow_ett.store.engine import Store
from airflow_ett.store.project import load_events
from airflow_ett.store.results import completed
from airflow_ett.store.scope import Dags, within

_COLUMNS = (
    *("job", "deployment", "dag_id", "run_id", "task_id", "map_index", "generation"),
    *("state", "quality", "frozen", "begin_ns", "end_ns", "wall_ns", "held_ns", "effective_ns"),
    *("ett_pct", "tts_ns", "nof", "accelerators", "revision", "updated_ns", "result"),
)

_LISTED = (
    *(name for name in _COLUMNS if name != "result"),
    *("attempts", "ttr_ns", "recoveries", "nof_by_cause", "components_ns", "released_ns"),
)
_DETAILS = (tables.submission, tables.attempt, tables.phase, tables.checkpoint, tables.publish)
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs: those of the DAGs (None: of every one) in a deployment (None: in each), and of
    these what the rest leaves.

    Jobs began at or after ``since_ns`` and before ``until_ns``; no ``states`` means each.
    """

    dag_ids: Collection[str] | None = None
    deployment: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    states: Collection[str] = ()
    since_ns: int | None = None
    until_ns: int | None = None

    def conditions(self, store: Store) -> list[ColumnElement[bool]]:
        """Return them as conditions on ``ett_job``."""
        job = tables.job.c
        found = Dags(self.dag_ids, self.deployment).conditions(store, tables.job)
        equal = ((job.run_id, self.run_id), (job.task_id, self.task_id))
        found += [column == value for column, value in equal if value is not None]
        if self.states:
            found.append(job.state.in_(self.states))
        if self.since_ns is not None:
            found.append(job.begin_ns >= self.since_ns)
        if self.until_ns is not None:
            found.append(job.begin_ns < self.until_ns)
        return found


class JobPlace(NamedTuple):
    """Where a job stands in the list of all: the newest come first."""

    begin_ns: int
    job: str


class EventPlace(NamedTuple):
    """Where an event stands among those of its job: by writer, then by number."""

    writer: str
    seq: int


def job_list(
    store: Store, wanted: Wanted, *, after: JobPlace | None, limit: int
) -> list[Mapping[str, Any]]:
    """Return jobs without their results, newest first: those that stand behind ``after``."""
    job = tables.job.c
    query = select(*(job[name] for name in _LISTED)).where(*wanted.conditions(store))
    if after is not None:
        behind = or_(job.begin_ns < after.begin_ns, job.job > after.job)
        query = query.where(and_(job.begin_ns <= after.begin_ns, behind))
    query = query.order_by(job.begin_ns.desc(), job.job).limit(limit)
    with store.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def dag_of(store: Store, job: str, dags: Dags) -> str | None:
    """Return the DAG of a job, None where these DAGs have no such job."""
    query = select(tables.job.c.dag_id).where(tables.job.c.job == job)
    query = query.where(*dags.conditions(store, tables.job))
    with store.read() as connection:
        found: str | None = connection.scalar(query)
        return found


def job_details(store: Store, job: str) -> dict[str, Any] | None:
    """Return a job with its result, and its rows of the other tables by their names without
    ``ett_``; None where there is no such job."""
    columns = (tables.job.c[name] for name in (*_LISTED, "result"))
    with store.read() as connection:
        row = connection.execute(select(*columns).where(tables.job.c.job == job)).one_or_none()
        if row is None:
            return None
        found: dict[str, Any] = dict(row._mapping)
        result = completed(row.result, held_ns=row.held_ns, effective_ns=row.effective_ns)
        found["result"] = result
        for table in _DETAILS:
            rows = connection.execute(_of_job(table, job)).mappings()
            found[table.name.removeprefix("ett_")] = [dict(row) for row in rows]
    return found


def _of_job(table: Table, job: str) -> Any:
    columns = [column for column in table.c if column.name != "job"]
    key = [column for column in table.primary_key if column.name != "job"]
    return select(*columns).where(table.c.job == job).order_by(*key)


def events(store: Store, job: str, *, after: EventPlace | None, limit: int) -> list[Event]:
    """Return the job's stored events that stand behind ``after``."""
    event = tables.event.c
    only = []
    if after is not None:
        only.append(tuple_(event.writer, event.seq) > tuple_(after.writer, after.seq))
    order = (event.writer, event.seq)
    with store.read() as connection:
        return list(load_events(connection, job, *only, order=order, limit=limit))


def jobs(
    store: Store,
    *,
    dag_ids: Collection[str] | None = None,
    deployment: str | None = None,
    run_id: str | None = None,
    task_id: str | None = None,
    since_ns: int | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Return jobs, newest first.

    ``dag_ids`` None means every DAG, an empty collection none; ``deployment`` None means each;
    ``since_ns`` keeps the jobs that began then or later.
    """
    job = tables.job.c
    wanted = Wanted(dag_ids, deployment, run_id, task_id, since_ns=since_ns)
    query = select(*(job[name] for name in _COLUMNS)).where(*wanted.conditions(store))
    query = query.order_by(job.begin_ns.desc(), job.job)
    if limit is not None:
        query = query.limit(limit)
    with store.read() as connection:
        rows = [JobRow(*row) for row in connection.execute(query)]
    return [replace(row, result=told(row)) for row in rows]


def told(row: Any) -> dict[str, Any]:
    """Return the result of a row that has the job's held and effective time and its revision."""
    result = completed(row.result, held_ns=row.held_ns, effective_ns=row.effective_ns)
    return result | {"revision": row.revision, "revised_ns": row.updated_ns}


def result_parts(
    store: Store, jobs: Collection[str], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return these keys of the results of jobs by their ids, None for what a result has not.

    Few of a result's keys are long (``checkpoints``), and those that nobody asked for stay in the
    database.
    """
    job = tables.job.c
    picked = _picked_sqlite(names) if store.is_sqlite else _picked_postgres(names)
    query = select(job.job, job.held_ns, job.effective_ns, picked)
    with store.read() as connection:
        rows = connection.execute(query.where(within(store, job.job, jobs))).all()
    return {
        row.job: completed(
            dict(zip(names, row[3][1:], strict=True)),
            held_ns=row.held_ns,
            effective_ns=row.effective_ns,
            whole=False,
        )
        for row in rows
    }


def _picked_sqlite(names: Sequence[str]) -> ColumnElement[Any]:
    """Two paths or more make an array of what is found."""
    paths = (f'$."{name}"' for name in ("job", *names))
    return func.json_extract(tables.job.c.result, *paths, type_=JSON)


def _picked_postgres(names: Sequence[str]) -> ColumnElement[Any]:
    """A record is read once; each ``->`` would read the whole text anew."""
    columns = [column(name, JSON) for name in ("job", *names)]
    record = func.json_to_record(tables.job.c.result).table_valued(*columns)
    record = record.render_derived(with_types=True)
    picked = select(func.json_build_array(*record.c, type_=JSON)).select_from(record)
    return picked.scalar_subquery()


def first_checkpoints(
    store: Store, jobs: Collection[str], count: int
) -> dict[str, list[dict[str, Any]]]:
    """Return when the first saves of jobs, by their ids, were done and committed."""
    saved = tables.checkpoint.c
    query = select(saved.job, saved.saved_ns, saved.committed_ns)
    query = query.where(within(store, saved.job, jobs), saved.number < count)
    found: dict[str, list[dict[str, Any]]] = {job: [] for job in jobs}
    with store.read() as connection:
        for row in connection.execute(query.order_by(saved.job, saved.number)).mappings():
            found[row["job"]].append({name: row[name] for name in ("saved_ns", "committed_ns")})
    return found


def dag_task_ids(store: Store, dags: Dags) -> list[str]:
    """Return the tasks of DAGs that have trained, in alphabetical order."""
    task = tables.job.c.task_id
    query = select(task).where(*dags.conditions(store, tables.job)).distinct().order_by(task)
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
