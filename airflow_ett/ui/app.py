"""The FastAPI app at ``/ett``: the tabs' pages and the API. Made in the api-server alone.

Every page asks for a signed-in user, the chart script included; a Dag's and a run's ask for the
right to read that Dag's runs besides, and the fleet shows the Dags that the user may read. The
pages read the store and nothing else.
"""

import time

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

from airflow_ett.api import app as api
from airflow_ett.api import errors
from airflow_ett.api.app import Headers
from airflow_ett.api.openapi import document
from airflow_ett.errors import StoreError
from airflow_ett.ui import guide, pages, pulse
from airflow_ett.ui.dag import routes as dag
from airflow_ett.ui.depends import Denied, get_user
from airflow_ett.ui.fleet import routes as fleet
from airflow_ett.ui.run import routes as run
from airflow_ett.ui.timeline import routes as timeline

_SIGNED_OUT = (401, 403)


def create_app() -> FastAPI:
    """Return the app."""
    app = FastAPI(title="ETT%", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Headers)
    for part in (
        dag.router,
        run.router,
        timeline.router,
        fleet.router,
        pulse.router,
        guide.router,
        _common,
    ):
        app.include_router(part, dependencies=[Depends(get_user)])
    app.include_router(api.router())
    _handle_errors(app)
    return app


_common = APIRouter(include_in_schema=False)


@_common.get("/static/plotly.min.js")
def chart_script() -> Response:
    """The page asks for it with its version, so it never changes under one address."""
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return FileResponse(pages.plotly_script(), headers=headers)


@_common.get(f"{api.PREFIX}/docs")
def api_docs(request: Request) -> Response:
    return pages.answer(pages.api_page(document(request.app)))


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
        return pages.answer(pages.denied_page(error.dag_id, error.user), 403)
    if isinstance(error, HTTPException) and error.status_code in _SIGNED_OUT:
        return pages.answer(pages.signed_out_page(), error.status_code)
    if isinstance(error, HTTPException | RequestValidationError):
        status = error.status_code if isinstance(error, HTTPException) else 422
        return pages.answer(pages.no_page(status), status)
    reference = errors.logged(error, path)
    if isinstance(error, StoreError):
        html = pages.store_page(error, now_ns=time.time_ns(), reference=reference)
        return pages.answer(html, 503)
    return pages.answer(pages.failed_page(reference), 500)
