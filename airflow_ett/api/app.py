"""The API's routes in one place, and the headers that every answer bears."""

from typing import Any

from fastapi import APIRouter, Depends
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_ett.api import fleet, jobs, logs, metrics, models, openapi
from airflow_ett.api.access import get_user

PREFIX = "/api/v1"

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": models.Problem, "description": "Nobody is signed in."},
    403: {"model": models.Problem, "description": "The user may not read this DAG's runs."},
    404: {"model": models.Problem, "description": "There is none that the user may read."},
    422: {"model": models.Problem, "description": "A parameter cannot be used."},
    503: {"model": models.Problem, "description": "The database is away: ask again."},
}


def router() -> APIRouter:
    """Return all routes: those of users, the scraper's, and those of the jobs' own tokens."""
    whole = APIRouter()
    for part in (jobs.router, fleet.router, openapi.router):
        whole.include_router(
            part, prefix=PREFIX, dependencies=[Depends(get_user)], responses=_PROBLEMS
        )
    whole.include_router(logs.router(), prefix=PREFIX)
    whole.include_router(metrics.router, responses={401: _PROBLEMS[401], 404: _PROBLEMS[404]})
    return whole


def is_for_programs(path: str) -> bool:
    """Say whether who asks for this path, relative to the app, expects no page."""
    return path.startswith(("/api/", "/metrics"))


class Headers:
    """Gives every answer the headers that keep it private, unless it has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
