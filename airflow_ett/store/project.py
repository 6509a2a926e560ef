"""From a job's events to its rows: what the metric says, laid out for queries."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from airflow_ett.events import USER_CAUSES, AttemptId, Event
from airflow_ett.metric import AttemptMetric, Components, JobMetric
from airflow_ett.store import tables
from airflow_ett.store.storable import row_of, whole

_COPIED = (
    *("deployment", "dag_id", "run_id", "task_id", "map_index", "generation", "state", "quality"),
    *("frozen", "begin_ns", "end_ns", "wall_ns", "held_ns", "effective_ns", "ett_pct", "tts_ns"),
    *("nof", "nof_by_cause", "components_ns", "accelerators", "released_ns"),
)
_PUBLISHED = ("published", "released_ns")
"""What of a result goes on after the job's end: no number of its training."""

_EVENT = (
    *("writer", "seq", "time_ns", "kind", "rank", "data", "extra"),
    *("submission", "scheduler_restart", "elastic_restart"),
)
_AT_ONCE = 5000


def project(
    connection: Connection,
    job: str,
    metric: JobMetric,
    submitted: Iterable[Event],
    components: Components,
    *,
    now_ns: int,
) -> None:
    """Replace the rows of ``job`` by what the metric says, with ``components``, at ``now_ns``.

    ``submitted`` are the job's events of that kind. A result that has not changed changes nothing.
    Where other numbers than those of an ended job come out, because of late evidence or of other
    components, they are its next revision; a version published since is no number.
    """
    # As JSON gives it back, so that it compares with what is stored.
    result: dict[str, Any] = json.loads(json.dumps(metric.as_dict()))
    job_ = tables.job.c
    known = select(job_.result, job_.frozen, job_.revision, job_.mapping).where(job_.job == job)
    old = connection.execute(known).one_or_none()
    if old is not None and (old.result, old.mapping) == (result, components.digest):
        return
    row = {name: result[name] for name in _COPIED}
    row |= {"attempts": len(result["attempts"]), "result": result, "mapping": components.digest}
    row |= _recoveries(metric)
    if old is None or _numbers(old.result) != _numbers(result):
        revision = 1 if old is None else old.revision + bool(old.frozen)
        row |= {"revision": revision, "updated_ns": now_ns, "rolled_up": False}
    elif old.result.get("released_ns") != result["released_ns"]:
        row["rolled_up"] = False
    if old is None:
        connection.execute(insert(tables.job), row_of(tables.job, {"job": job, **row}))
    else:
        connection.execute(update(tables.job).where(job_.job == job), row_of(tables.job, row))
    same = frozenset[AttemptId]()
    if old is not None and old.mapping == components.digest:
        same = _unchanged(old.result, result)
    _replace(connection, job, _rows(metric, result, submitted, same), same)


def load_events(
    connection: Connection,
    job: str,
    *only: ColumnElement[bool],
    order: Sequence[ColumnElement[Any]] = (),
    limit: int | None = None,
    at_once: int = _AT_ONCE,
) -> Iterator[Event]:
    """Yield the stored events of ``job`` that meet all conditions, in no order unless told one.

    ``at_once`` is how many of them are in memory, at least.
    """
    columns = (tables.event.c[name] for name in _EVENT)
    query = select(*columns).where(tables.event.c.job == job, *only).order_by(*order).limit(limit)
    rows = connection.execute(query, execution_options={"yield_per": at_once})
    for writer, seq, time_ns, kind, rank, data, extra, *attempt in rows:
        yield Event(job, writer, seq, time_ns, kind, _attempt(attempt), rank, data, extra)


def _attempt(numbers: Sequence[Any]) -> AttemptId | None:
    return None if numbers[0] is None else AttemptId(*numbers)


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in _PUBLISHED}


def _recoveries(metric: JobMetric) -> dict[str, int]:
    """Sum up the recoveries that succeeded, those from a user's own restart aside."""
    told = [one.ns for one in metric.ttr if one.recovered and one.cause not in USER_CAUSES]
    return {"ttr_ns": sum(told), "recoveries": len(told)}


def _unchanged(old: Mapping[str, Any], new: Mapping[str, Any]) -> frozenset[AttemptId]:
    """Return the attempts of which nothing has changed: all but the last few of a long job."""
    known = {_id(attempt): attempt for attempt in old["attempts"]}
    return frozenset(_id(one) for one in new["attempts"] if known.get(_id(one)) == one)


def _id(attempt: Mapping[str, Any]) -> AttemptId:
    return AttemptId(*(attempt[name] for name in AttemptId._fields))


def _rows(
    metric: JobMetric,
    result: Mapping[str, Any],
    submitted: Iterable[Event],
    same: Collection[AttemptId],
) -> dict[Table, list[dict[str, Any]]]:
    """Lay out the job's rows, those of the attempts that are the ``same`` left out."""
    return {
        tables.submission: _submissions(submitted),
        tables.attempt: [
            {**attempt, "try_number": attempt["try"]}
            for attempt in result["attempts"]
            if _id(attempt) not in same
        ],
        tables.phase: _phases(attempt for attempt in metric.attempts if attempt.id not in same),
        tables.checkpoint: [
            {**saved, "number": number, "attempt": str(AttemptId(*saved["attempt"]))}
            for number, saved in enumerate(result["checkpoints"])
        ],
        tables.publish: [
            {
                **published,
                "number": number,
                "begin_ns": published["begin"],
                "end_ns": published["end"],
            }
            for number, published in enumerate(result["published"])
        ],
    }


def _replace(
    connection: Connection,
    job: str,
    rows: Mapping[Table, Sequence[Mapping[str, Any]]],
    same: Collection[AttemptId],
) -> None:
    for table in tables.PROJECTED:
        _delete(connection, table, job, same)
        if rows[table]:
            connection.execute(
                insert(table), [row_of(table, {**r, "job": job}) for r in rows[table]]
            )


def _delete(connection: Connection, table: Table, job: str, same: Collection[AttemptId]) -> None:
    """Delete a job's rows, but those of the attempts that are the ``same``."""
    of_job = table.c.job == job
    if not same or table not in (tables.attempt, tables.phase):
        connection.execute(delete(table).where(of_job))
        return
    columns = [table.c[name] for name in AttemptId._fields]
    stored = connection.execute(select(*columns).where(of_job).distinct())
    others = [row for row in stored if AttemptId(*row) not in same]
    if others:
        these = (column == bindparam(f"its_{column.name}") for column in columns)
        keys = [{f"its_{n}": value for n, value in row._mapping.items()} for row in others]
        connection.execute(delete(table).where(of_job, *these), keys)


def _submissions(events: Iterable[Event]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for event in sorted(events, key=lambda event: (event.time_ns, event.writer, event.seq)):
        data = event.data
        number = whole(data.get("submission"))
        if number is None:
            continue
        rows[number] = {
            "submission": number,
            "submitted_ns": event.time_ns,
            "app": data.get("app"),
            "handle": data.get("handle"),
            "layer": data.get("layer"),
            "try_number": data.get("try"),
            "resume_cursor": data.get("resume_cursor"),
        }
    return list(rows.values())


def _phases(attempts: Iterable[AttemptMetric]) -> list[dict[str, Any]]:
    """The attempts' phases; names that are one as their column takes them are added up.

    Of a phase with two components, before and in the loop, the one that took longer is told.
    """
    rows: dict[tuple[AttemptId, str], dict[str, Any]] = {}
    for attempt in attempts:
        for booking, ns in sorted(attempt.booked.items(), key=lambda part: -part[1]):
            name = row_of(tables.phase, {"phase": booking.phase})["phase"]
            row = {**attempt.id._asdict(), "phase": name, "component": booking.component, "ns": 0}
            rows.setdefault((attempt.id, name), row)["ns"] += ns
    return list(rows.values())
