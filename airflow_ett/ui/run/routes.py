"""The route of the run's and the task instance's tab."""

import time
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from airflow_ett import config
from airflow_ett.api.names import Name
from airflow_ett.api.places import safe_place
from airflow_ett.metric import configured
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.depends import PageClock, PageStore, ReadableDag
from airflow_ett.ui.pages import answer, render
from airflow_ett.ui.pulse import pulse_of
from airflow_ett.ui.run import reads
from airflow_ett.ui.run.choice import Choice, address, choose, map_index_of
from airflow_ett.ui.run.view import JOBS, jobs_view, run_view
from airflow_ett.ui.timeline.phases import components_of
from airflow_ett.ui.timeline.reads import keep_days
from airflow_ett.ui.timeline.view import timeline_of

router = APIRouter(include_in_schema=False)


@router.get("/run/{dag_id}")
def run_tab(
    dag_id: ReadableDag,
    store: PageStore,
    clock: PageClock,
    run_id: Annotated[Name, Query()] = "",
    task_id: Annotated[Name, Query()] = "",
    map_index: str = "",
    job: Annotated[Name, Query()] = "",
    show: Annotated[list[str] | None, Query(max_length=10)] = None,
) -> Response:
    now_ns = time.time_ns()
    # Before the jobs: what changes between the two is shown by the next look.
    pulse = pulse_of(store, dag_id, run_id=run_id, task_id=task_id or None, now_ns=now_ns)
    rows = reads.jobs(store, dag_id, run_id, task_id or None)
    chosen = choose(rows, map_index=map_index_of(map_index), job=job)
    whole = frozenset(show or ())
    here = {"run_id": run_id, "task_id": task_id, "map_index": map_index}
    shown: dict[str, Any] = {"dag_id": dag_id, "run_id": run_id, "pulse": pulse}
    stored = reads.job(store, chosen.job) if chosen.job else None
    if stored is not None:
        shown["back"] = address(**here) if len(chosen.jobs) > 1 else ""
        shown["more"] = partial(_more, here | {"job": job}, whole)
        shown |= _of_job(stored, chosen, clock, now_ns, whole)
        return answer(render("run/page.html", clock, **shown))
    if chosen.jobs:
        shown["more"] = partial(_more, here, whole)
        shown["jobs"] = jobs_view(chosen.jobs, run_id, show_all=JOBS in whole)
        return answer(render("run/jobs.html", clock, **shown))
    shown["others"] = bool(task_id) and bool(reads.jobs(store, dag_id, run_id, None))
    if shown["others"] and pulse:
        shown["pulse"] = replace(pulse, live=False)
    return answer(render("run/empty.html", clock, **shown))


def _of_job(
    stored: reads.Stored, chosen: Choice, clock: Clock, now_ns: int, whole: frozenset[str]
) -> dict[str, Any]:
    components = configured(config.load())
    view = run_view(
        stored.result,
        stored.phases,
        clock,
        now_ns=now_ns,
        safe=safe_place,
        others=chosen.others,
        pruned=stored.pruned,
        whole=whole,
        components=components,
    )
    timeline = timeline_of(
        stored.result,
        clock,
        stored.result["job"],
        of=components_of((row.phase, row.component, row.ns) for row in stored.phases),
        components=components,
        removed=stored.pruned,
        keep_days=keep_days() if stored.pruned else None,
    )
    return {"view": view, "timeline": timeline}


def _more(here: dict[str, str], whole: frozenset[str], table: str) -> str:
    """Return the address of the same page with all rows of one more table."""
    return address(**here, show=sorted({*whole, table}))
