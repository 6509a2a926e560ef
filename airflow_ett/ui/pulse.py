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

_LIVE_S = 5
WAITING_S = 30
"""How often a page asks where something lives, and where nothing does but may begin."""

_BEAT_NS = 30 * 10**9
"""A live page is made anew at least this often: its lengths grow without any event."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Where a live page asks, and what it shows.

    ``href`` is relative to a page two levels below the app, such as ``/ett/dag/x``. ``version`` is
    another one as soon as there is something new to show. ``at_ns`` is when it was read. ``live``:
    a job lives, or is waited for.
    """

    href: str
    version: str
    at_ns: int
    live: bool = True

    @property
    def every_s(self) -> int:
        """How often to ask."""
        return _LIVE_S if self.live else WAITING_S


def pulse_of(
    store: Store,
    dag_id: str,
    *,
    run_id: str | None = None,
    task_id: str | None = None,
    now_ns: int,
) -> Pulse | None:
    """Return the pulse of a Dag, of one of its runs or of a task (in a run); None of a run whose
    jobs have ended.

    A job lives until its numbers are frozen. A run without any job lives, too, so that its first
    job appears by itself, and a Dag's next run may begin at any time. Raises
    :class:`airflow_ett.errors.StoreError`.
    """
    query = {"run_id": run_id, "task_id": task_id}
    asked = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    href = f"../pulse/{quote(dag_id, safe='')}" + (f"?{asked}" if asked else "")
    alive, newest, changed = _state(store, dag_id, run_id, task_id)
    if alive:
        return Pulse(href, f"{alive}-{newest}-{changed}-{now_ns // _BEAT_NS}", now_ns)
    if run_id:
        return None if newest else Pulse(href, "none", now_ns)
    return Pulse(href, f"0-{newest}", now_ns, live=False)


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
        "live": found is not None and found.live,
        "at": clock.second(now_ns),
    }
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _state(
    store: Store, dag_id: str, run_id: str | None, task_id: str | None
) -> tuple[int, int | None, int | None]:
    """Return how many jobs live, what grows with each new job, and the newest change of a job."""
    job = tables.job.c
    dag = of_this_airflow([dag_id]).conditions(store, tables.job)
    equal = ((job.run_id, run_id), (job.task_id, task_id))
    here = [*dag, *(column == value for column, value in equal if value)]
    count, changed = func.count(), func.max(job.updated_ns)
    if run_id:
        live = func.count(case((~job.frozen, 1)))
        query = select(live, count, changed).where(*here)
    else:
        # The live ones have an index of their own; one that came and ended meanwhile is the newest.
        begins = select(job.begin_ns).where(*dag).order_by(job.begin_ns.desc())
        newest = begins.limit(1).scalar_subquery()
        query = select(count, newest, changed).where(*here, ~job.frozen)
    with store.read() as connection:
        alive, newest_begin, changed_ns = connection.execute(query).one()
        return alive, newest_begin, changed_ns
