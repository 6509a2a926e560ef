"""Has what a page shows changed? Live pages ask this often, so the answer is small and cheap."""

import time
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from sqlalchemy import case, func, select

from airflow_ett.api.access import of_this_airflow
from airflow_ett.api.names import Name
from airflow_ett.store import Store, tables
from airflow_ett.ui.depends import PageClock, PageStore, ReadableDag

router = APIRouter(include_in_schema=False)

_BEAT_NS = 30 * 10**9
"""A live page is made anew at least this often: its lengths grow without any event."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Where a live page asks, and what it shows.

    ``href`` is relative to a page two levels below the app, such as ``/ett/dag/x``. ``version`` is
    another one as soon as there is something new to show. ``at_ns`` is when it was read.
    """

    href: str
    version: str
    at_ns: int


def pulse_of(
    store: Store,
    dag_id: str,
    *,
    run_id: str | None = None,
    task_id: str | None = None,
    now_ns: int,
) -> Pulse | None:
    """Return the pulse of a Dag, of one of its runs or of a task (in a run); None where none lives.

    A job lives until its numbers are frozen. A run without any job lives, too, so that its first
    job appears by itself. Raises :class:`airflow_ett.errors.StoreError`.
    """
    query = {"run_id": run_id, "task_id": task_id}
    asked = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    href = f"../pulse/{quote(dag_id, safe='')}" + (f"?{asked}" if asked else "")
    state = _state(store, dag_id, run_id, task_id)
    if state is None:
        return None
    return Pulse(href, f"{state}-{now_ns // _BEAT_NS}" if state else "none", now_ns)


@router.get("/pulse/{dag_id}")
def pulse(
    dag_id: ReadableDag,
    store: PageStore,
    clock: PageClock,
    run_id: Annotated[Name, Query()] = "",
    task_id: Annotated[Name, Query()] = "",
) -> Response:
    now_ns = time.time_ns()
    found = pulse_of(store, dag_id, run_id=run_id or None, task_id=task_id or None, now_ns=now_ns)
    answer = {
        "version": found.version if found else "",
        "live": found is not None,
        "at": clock.second(now_ns),
    }
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _state(store: Store, dag_id: str, run_id: str | None, task_id: str | None) -> str | None:
    """Return what tells one state of the jobs from the next: "" without a job, None at the end."""
    job = tables.job.c
    here = of_this_airflow([dag_id]).conditions(store, tables.job)
    equal = ((job.run_id, run_id), (job.task_id, task_id))
    here += [column == value for column, value in equal if value]
    count, changed = func.count(), func.max(job.updated_ns)
    if run_id:
        live = func.count(case((~job.frozen, 1)))
        query = select(live, count, changed).where(*here)
    else:
        # The live ones have an index of their own; one that came and ended meanwhile is the newest.
        newest = select(func.max(job.begin_ns)).where(job.dag_id == dag_id).scalar_subquery()
        query = select(count, newest, changed).where(*here, ~job.frozen)
    with store.read() as connection:
        alive, *rest = connection.execute(query).one()
    if alive:
        return "-".join(map(str, (alive, *rest)))
    return "" if run_id and not rest[0] else None
