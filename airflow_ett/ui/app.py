"""The FastAPI app at ``/ett``: the tab's pages and the API. Made in the api-server alone.

Every page asks for a signed-in user, the chart script included; a Dag's asks for the right to read
that Dag's runs besides. The pages read the store and nothing else.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.exceptions import HTTPException

from airflow_ett import config
from airflow_ett.api import app as api
from airflow_ett.api import errors
from airflow_ett.api.access import of_this_airflow
from airflow_ett.api.app import Headers
from airflow_ett.api.openapi import document
from airflow_ett.api.reading import current_store
from airflow_ett.errors import StoreError
from airflow_ett.metric import configured
from airflow_ett.store import queries
from airflow_ett.ui import pages
from airflow_ett.ui.access import Denied, ReadableDag, get_user
from airflow_ett.ui.view import dag_view, period_of

_SIGNED_OUT = (401, 403)


class JobSource(Protocol):
    """Where the tab's jobs come from."""

    def __call__(
        self, dag_id: str, *, since_ns: int | None, limit: int | None
    ) -> Sequence[queries.JobRow]:
        """Return a Dag's jobs that began at or after ``since_ns``, the newest ``limit`` of them."""


def stored_jobs(
    dag_id: str, *, since_ns: int | None, limit: int | None
) -> Sequence[queries.JobRow]:
    """Read the Dag's jobs in this deployment from the store at ``[ett] sql_alchemy_conn``.

    Raises :class:`StoreError` when it is away or at another revision.
    """
    dags = of_this_airflow([dag_id])
    return queries.jobs(
        current_store(),
        dag_ids=dags.ids,
        deployment=dags.deployment,
        since_ns=since_ns,
        limit=limit,
    )


def create_app(source: JobSource = stored_jobs) -> FastAPI:
    """Return the app, whose tab reads its jobs from ``source``."""
    app = FastAPI(title="ETT%", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Headers)
    app.include_router(_pages(source), dependencies=[Depends(get_user)])
    app.include_router(api.router())
    _handle_errors(app)
    return app


def _pages(source: JobSource) -> APIRouter:
    pages_ = APIRouter(include_in_schema=False)

    @pages_.get("/dag/{dag_id}")
    def dag_tab(dag_id: ReadableDag, period: str = "", rows: str = "") -> Response:
        return _page(_dag_page(source, dag_id, period, show_all=rows == "all"))

    @pages_.get("/static/plotly.min.js")
    def chart_script() -> Response:
        # The page asks for it with its version, so it never changes under one address.
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return FileResponse(pages.plotly_script(), headers=headers)

    @pages_.get(f"{api.PREFIX}/docs")
    def api_docs(request: Request) -> Response:
        return _page(pages.api_page(document(request.app)))

    return pages_


def _dag_page(source: JobSource, dag_id: str, period_key: str, *, show_all: bool) -> str:
    now_ns = time.time_ns()
    period = period_of(period_key)
    rows = source(dag_id, since_ns=period.since(now_ns), limit=period.limit)
    results = [row.result for row in rows]
    view = dag_view(
        results,
        period=period,
        now_ns=now_ns,
        show_all=show_all,
        components=configured(config.load()),
    )
    as_of_ns = max((row.updated_ns for row in rows), default=now_ns)
    if view is not None:
        return pages.dag_page(dag_id, view, as_of_ns)
    if source(dag_id, since_ns=None, limit=1):
        return pages.empty_period_page(dag_id, period, as_of_ns)
    return pages.empty_dag_page(dag_id)


def _page(html: str, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": pages.content_security_policy()}
    return HTMLResponse(html, status, headers=headers)


def _handle_errors(app: FastAPI) -> None:
    """Answer every failure with what to do, under its true status: programs get JSON."""

    @app.exception_handler(Denied)
    @app.exception_handler(RequestValidationError)
    @app.exception_handler(HTTPException)
    @app.exception_handler(StoreError)
    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if api.is_for_programs(path) and path != f"{api.PREFIX}/docs":
            return errors.answer(error, path)
        return _failed_page(error, path)


def _failed_page(error: Exception, path: str) -> Response:
    if isinstance(error, Denied):
        return _page(pages.denied_page(error.dag_id, error.user), 403)
    if isinstance(error, HTTPException) and error.status_code in _SIGNED_OUT:
        return _page(pages.signed_out_page(), error.status_code)
    if isinstance(error, HTTPException | RequestValidationError):
        return errors.answer(error, path)
    reference = errors.logged(error, path)
    if isinstance(error, StoreError):
        html = pages.store_page(error, now_ns=time.time_ns(), reference=reference)
        return _page(html, 503)
    return _page(pages.failed_page(reference), 500)
