"""The Dag tab's route."""

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from airflow_ett import config
from airflow_ett.metric import configured
from airflow_ett.ui.dag import reads
from airflow_ett.ui.dag.filters import Asked, filters_of
from airflow_ett.ui.dag.period import CUSTOM, PERIODS, Span
from airflow_ett.ui.dag.view import dag_view
from airflow_ett.ui.depends import PageClock, PageStore, ReadableDag
from airflow_ett.ui.examples import first_steps
from airflow_ett.ui.pages import answer, render
from airflow_ett.ui.pulse import pulse_of

router = APIRouter(include_in_schema=False)


@router.get("/dag/{dag_id}")
def dag_tab(
    dag_id: ReadableDag,
    store: PageStore,
    clock: PageClock,
    asked: Annotated[Asked, Depends()],
) -> Response:
    now_ns = time.time_ns()
    tasks = reads.tasks(store, dag_id)
    if not tasks:
        pulse = pulse_of(store, dag_id, now_ns=now_ns)
        shown = {"dag_id": dag_id, "steps": first_steps(), "pulse": pulse}
        return answer(render("dag/empty.html", clock, **shown))
    filters = filters_of(asked, tasks, now_ns=now_ns, clock=clock)
    span = filters.period.span(now_ns, clock)
    # Before the jobs: what changes between the two is shown by the next look.
    pulse = pulse_of(store, dag_id, task_id=filters.task, now_ns=now_ns)
    jobs = reads.jobs(store, dag_id, task=filters.task, period=filters.period, span=span)
    shown = {
        "dag_id": dag_id,
        "filters": filters,
        "tasks": tasks,
        "periods": (*PERIODS, CUSTOM),
        "as_of_ns": max((row["updated_ns"] for row in jobs.within), default=now_ns),
        "pulse": None if _is_over(span, jobs.within, now_ns) else pulse,
    }
    if not jobs.within:
        return answer(render("dag/empty_period.html", clock, **shown))
    view = dag_view(
        dag_id,
        jobs.within,
        jobs.before,
        filters,
        clock=clock,
        one_task=len(tasks) == 1,
        components=configured(config.load()),
    )
    return answer(render("dag/page.html", clock, view=view, cut=jobs.cut, **shown))


def _is_over(span: Span, jobs: Sequence[reads.Row], now_ns: int) -> bool:
    """Say whether nothing of a period will change any more."""
    past = span.end_ns is not None and span.end_ns <= now_ns
    return past and all(job["frozen"] for job in jobs)
