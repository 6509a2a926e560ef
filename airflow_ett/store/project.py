"""From a job's events to its rows: what the metric says, laid out for queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric import component_of, measure
from airflow_ett.store import tables
from airflow_ett.store.storable import row_of, whole

_COPIED = (
    *("deployment", "dag_id", "run_id", "task_id", "map_index", "generation", "state", "quality"),
    *("frozen", "begin_ns", "end_ns", "wall_ns", "held_ns", "effective_ns", "ett_pct", "tts_ns"),
    *("nof", "nof_by_cause", "components_ns", "accelerators"),
)


def project(
    connection: Connection,
    job: str,
    *,
    open_interval: Event | None,
    now_ns: int,
    last_sign_ns: int | None,
) -> None:
    """Measure ``job`` from its stored events and replace its rows.

    ``open_interval`` is what its trainer has not closed yet: measured with, never stored, since
    the trainer may still write it, longer, under the same number. A result that has not changed
    changes nothing; one that was frozen becomes its next revision. Raises whatever the events of
    an odd job make it raise.
    """
    events = load_events(connection, job)
    if open_interval is not None and not _holds(events, open_interval):
        events.append(open_interval)
    metric = measure(events, now_ns=now_ns, last_sign_ns=last_sign_ns)
    # As JSON gives it back, so that it compares with what is stored.
    result: dict[str, Any] = json.loads(json.dumps(metric.as_dict()))
    known = select(tables.job.c.result, tables.job.c.frozen, tables.job.c.revision)
    old = connection.execute(known.where(tables.job.c.job == job)).one_or_none()
    if old is not None and old.result == result:
        return
    row = {name: result[name] for name in _COPIED}
    row |= {
        "job": job,
        "attempts": len(result["attempts"]),
        "result": result,
        "revision": 1 if old is None else old.revision + bool(old.frozen),
        "updated_ns": now_ns,
        "rolled_up": False,
    }
    row = row_of(tables.job, row)
    if old is None:
        connection.execute(insert(tables.job), row)
    else:
        connection.execute(update(tables.job).where(tables.job.c.job == job), row)
    _replace(connection, job, _rows(result, events))


def load_events(connection: Connection, job: str) -> list[Event]:
    """Return the stored events of ``job``, in no particular order."""
    rows = connection.execute(select(tables.event).where(tables.event.c.job == job))
    return [
        Event(
            job=row.job,
            writer=row.writer,
            seq=row.seq,
            time_ns=row.time_ns,
            kind=row.kind,
            attempt=_attempt(row),
            rank=row.rank,
            data=row.data,
            extra=row.extra,
        )
        for row in rows
    ]


def _attempt(row: Any) -> AttemptId | None:
    if row.submission is None:
        return None
    return AttemptId(row.submission, row.scheduler_restart, row.elastic_restart)


def _holds(events: Iterable[Event], wanted: Event) -> bool:
    return any(e.writer == wanted.writer and e.seq == wanted.seq for e in events)


def _rows(result: Mapping[str, Any], events: Iterable[Event]) -> dict[Table, list[dict[str, Any]]]:
    return {
        tables.submission: _submissions(events),
        tables.attempt: [
            {**attempt, "try_number": attempt["try"]} for attempt in result["attempts"]
        ],
        tables.phase: [row for attempt in result["attempts"] for row in _phases(attempt)],
        tables.checkpoint: [
            {**saved, "number": number, "attempt": str(AttemptId(*saved["attempt"]))}
            for number, saved in enumerate(result["checkpoints"])
        ],
        tables.publish: [
            {
                "number": number,
                "version": published["version"],
                "uri": published["uri"],
                "begin_ns": published["begin"],
                "end_ns": published["end"],
            }
            for number, published in enumerate(result["published"])
        ],
    }


def _replace(
    connection: Connection, job: str, rows: Mapping[Table, Sequence[Mapping[str, Any]]]
) -> None:
    for table in tables.PROJECTED:
        connection.execute(delete(table).where(table.c.job == job))
        if rows[table]:
            connection.execute(
                insert(table), [row_of(table, {**r, "job": job}) for r in rows[table]]
            )


def _submissions(events: Iterable[Event]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for event in events:
        data = event.data
        number = whole(data.get("submission"))
        if event.kind != Kind.SUBMITTED or number is None:
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


def _phases(attempt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The attempt's phases; names that are one as their column takes them are added up."""
    rows: dict[str, dict[str, Any]] = {}
    for phase, ns in attempt["phases_ns"].items():
        name = row_of(tables.phase, {"phase": phase})["phase"]
        row = rows.setdefault(name, {"phase": name, "component": component_of(phase), "ns": 0})
        row["ns"] += ns
    return [{**attempt, **row} for row in rows.values()]
