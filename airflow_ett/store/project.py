"""From a job's events to its rows: what the metric says, laid out for queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from airflow_ett.errors import EventLogError
from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric import component_of, measure
from airflow_ett.store import tables

_COPIED = (
    *("deployment", "dag_id", "run_id", "task_id", "map_index", "generation", "state", "quality"),
    *("frozen", "begin_ns", "end_ns", "wall_ns", "held_ns", "effective_ns", "ett_pct", "tts_ns"),
    *("nof", "nof_by_cause", "components_ns", "accelerators"),
)
_ATTEMPT = ("submission", "scheduler_restart", "elastic_restart")


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
    changes nothing; one that was frozen becomes its next revision.
    """
    events = load_events(connection, job)
    if open_interval is not None and not _holds(events, open_interval):
        events.append(open_interval)
    result = _measured(job, events, now_ns=now_ns, last_sign_ns=last_sign_ns)
    known = select(tables.job.c.result, tables.job.c.frozen, tables.job.c.revision)
    old = connection.execute(known.where(tables.job.c.job == job)).one_or_none()
    if old is not None and old.result == result:
        return
    row = {name: result[name] for name in _COPIED}
    row |= {
        "attempts": len(result["attempts"]),
        "result": result,
        "revision": 1 if old is None else old.revision + bool(old.frozen),
        "updated_ns": now_ns,
        "rolled_up": False,
    }
    if old is None:
        connection.execute(insert(tables.job), {"job": job, **row})
    else:
        connection.execute(update(tables.job).where(tables.job.c.job == job), row)
    _replace(connection, job, _rows(result, events))


def _measured(job: str, events: list[Event], **clock: int | None) -> dict[str, Any]:
    """The metric's result as JSON gives it back, so that it compares with what is stored."""
    try:
        metric = measure(events, **clock)
    # Anybody may write a log: whatever its events do to the metric is this job's trouble alone.
    except Exception as error:
        raise EventLogError(f"The events of job {job} cannot be measured: {error!r}") from error
    result: dict[str, Any] = json.loads(json.dumps(metric.as_dict()))
    return result


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
        tables.attempt: [_attempt_row(attempt) for attempt in result["attempts"]],
        tables.phase: [
            {**_id(attempt), "phase": phase, "component": component_of(phase), "ns": ns}
            for attempt in result["attempts"]
            for phase, ns in attempt["phases_ns"].items()
        ],
        tables.checkpoint: [
            {"number": number, **_only(tables.checkpoint, saved), "attempt": _dotted(saved)}
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
            connection.execute(insert(table), [{"job": job, **row} for row in rows[table]])


def _submissions(events: Iterable[Event]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.kind != Kind.SUBMITTED:
            continue
        data = event.data
        rows[data["submission"]] = {
            "submission": data["submission"],
            "submitted_ns": event.time_ns,
            "app": data.get("app"),
            "handle": data.get("handle"),
            "layer": data.get("layer"),
            "try_number": data.get("try"),
            "resume_cursor": data.get("resume_cursor"),
        }
    return list(rows.values())


def _attempt_row(attempt: Mapping[str, Any]) -> dict[str, Any]:
    return {**_only(tables.attempt, attempt), "try_number": attempt["try"]}


def _id(attempt: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attempt[name] for name in _ATTEMPT}


def _dotted(saved: Mapping[str, Any]) -> str:
    return str(AttemptId(*saved["attempt"]))


def _only(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in table.c}
