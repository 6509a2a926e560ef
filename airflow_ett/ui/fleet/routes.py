"""The fleet page's route."""

from fastapi import APIRouter
from fastapi.responses import Response

from airflow_ett.ui.depends import PageClock, PageStore, ReadableDags
from airflow_ett.ui.pages import answer, render

router = APIRouter(include_in_schema=False)


@router.get("/fleet")
def fleet_page(dags: ReadableDags, store: PageStore, clock: PageClock) -> Response:
    return answer(render("fleet/page.html", clock, dags=dags))
