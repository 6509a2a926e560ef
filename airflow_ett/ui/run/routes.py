"""The routes of the run's and the task instance's tab."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from airflow_ett.api.names import Name
from airflow_ett.ui.depends import PageClock, PageStore, ReadableDag
from airflow_ett.ui.pages import answer, render
from airflow_ett.ui.run import reads

router = APIRouter(include_in_schema=False)


@router.get("/run/{dag_id}")
def run_tab(
    dag_id: ReadableDag,
    store: PageStore,
    clock: PageClock,
    run_id: Annotated[Name, Query()] = "",
) -> Response:
    jobs = reads.jobs(store, dag_id, run_id)
    return answer(render("run/page.html", clock, dag_id=dag_id, run_id=run_id, jobs=jobs))
