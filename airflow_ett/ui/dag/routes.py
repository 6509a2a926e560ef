"""The Dag tab's route."""

import time

from fastapi import APIRouter
from fastapi.responses import Response

from airflow_ett import config
from airflow_ett.metric import configured
from airflow_ett.ui.dag import reads
from airflow_ett.ui.dag.view import PERIODS, dag_view, period_of
from airflow_ett.ui.depends import PageClock, PageStore, ReadableDag
from airflow_ett.ui.examples import first_steps
from airflow_ett.ui.pages import answer, render

router = APIRouter(include_in_schema=False)


@router.get("/dag/{dag_id}")
def dag_tab(
    dag_id: ReadableDag, store: PageStore, clock: PageClock, period: str = "", rows: str = ""
) -> Response:
    now_ns = time.time_ns()
    chosen = period_of(period)
    jobs = reads.jobs(store, dag_id, since_ns=chosen.since(now_ns), limit=chosen.limit)
    view = dag_view(
        [row.result for row in jobs],
        period=chosen,
        now_ns=now_ns,
        show_all=rows == "all",
        components=configured(config.load()),
    )
    shown = {
        "dag_id": dag_id,
        "period": chosen,
        "periods": PERIODS,
        "as_of_ns": max((row.updated_ns for row in jobs), default=now_ns),
    }
    if view is not None:
        return answer(render("dag/page.html", clock, view=view, **shown))
    if reads.jobs(store, dag_id, since_ns=None, limit=1):
        return answer(render("dag/empty_period.html", clock, **shown))
    return answer(render("dag/empty.html", clock, dag_id=dag_id, steps=first_steps()))
