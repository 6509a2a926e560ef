"""The FastAPI app behind the ETT% tab. Made in the api-server alone.

Every route asks for a signed-in user, the chart script included; a Dag's route asks for the right
to read that Dag's runs besides. The pages read the store and nothing else.
"""

import logging
import secrets
import time
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import FileResponse, HTMLResponse, Response

from airflow_ett import config
from airflow_ett.errors import StoreError
from airflow_ett.metric import configured
from airflow_ett.store import Store, open_store, queries
from airflow_ett.ui import pages
from airflow_ett.ui.access import Denied, ReadableDag, get_user
from airflow_ett.ui.view import dag_view, period_of

_log = logging.getLogger(__name__)
_SIGNED_OUT = (401, 403)


class JobSource(Protocol):
    """Where the tab's jobs come from."""

    def __call__(
        self, dag_id: str, *, since_ns: int | None, limit: int | None
    ) -> Sequence[queries.JobRow]:
        """Return a Dag's jobs that began at or after ``since_ns``, the newest ``limit`` of them."""


@cache
def _store(url: str) -> Store:
    return open_store(url, patience_s=10)


def stored_jobs(
    dag_id: str, *, since_ns: int | None, limit: int | None
) -> Sequence[queries.JobRow]:
    """Read the Dag's jobs from the store at ``[ett] sql_alchemy_conn``.

    Raises :class:`StoreError` when it is away or at another revision.
    """
    store = _store(config.load().sql_alchemy_conn)
    store.check()
    return queries.jobs(store, dag_ids=[dag_id], since_ns=since_ns, limit=limit)


def create_app(source: JobSource = stored_jobs) -> FastAPI:
    """Return the app, which reads its jobs from ``source``."""
    app = FastAPI(
        title="ETT%",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(get_user)],
    )

    @app.get("/dag/{dag_id}")
    def dag_tab(dag_id: ReadableDag, period: str = "", rows: str = "") -> Response:
        return _page(_dag_page(source, dag_id, period, show_all=rows == "all"))

    @app.get("/static/plotly.min.js")
    def chart_script() -> Response:
        # The page asks for it with its version, so it never changes under one address.
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return FileResponse(pages.plotly_script(), headers=headers)

    _handle_errors(app)
    return app


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
    headers = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": pages.content_security_policy(),
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(html, status, headers=headers)


def _handle_errors(app: FastAPI) -> None:
    """Answer every failure with a page that says what to do, under its true status."""

    @app.exception_handler(Denied)
    def denied(_request: Request, error: Denied) -> Response:
        return _page(pages.denied_page(error.dag_id, error.user), 403)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.status_code in _SIGNED_OUT:
            return _page(pages.signed_out_page(), error.status_code)
        return await http_exception_handler(request, error)

    @app.exception_handler(StoreError)
    def store_failed(_request: Request, error: StoreError) -> Response:
        reference = _reference()
        _log.error("ETT%% store, reference %s: %s", reference, error, exc_info=error)
        html = pages.store_page(error, now_ns=time.time_ns(), reference=reference)
        return _page(html, 503)

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> Response:
        reference = _reference()
        _log.error("ETT%% page %s, reference %s", request.url.path, reference, exc_info=error)
        return _page(pages.failed_page(reference), 500)


def _reference() -> str:
    return secrets.token_hex(4)
