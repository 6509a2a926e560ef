"""The API's description, for programs."""

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute

from airflow_ett import __version__

_ABOUT = (
    "Effective training time of those DAGs of this Airflow that you may read. Instants are UTC "
    "nanoseconds since 1970, lengths nanoseconds, percents 0 to 100; null is unknown."
)
router = APIRouter()


@router.get("/openapi.json", include_in_schema=False)
def openapi_json(request: Request) -> Response:
    """Return the OpenAPI document of the app."""
    return JSONResponse(document(request.app))


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an app's routes for programs."""
    found: dict[str, Any] | None = getattr(app.state, "ett_openapi", None)
    if found is None:
        routes = [
            route
            for route in app.routes
            if isinstance(route, APIRoute) and route.path.startswith(("/api/", "/metrics"))
        ]
        # Relative to the document's own address, whatever base path Airflow has.
        servers = [{"url": "../.."}]
        found = get_openapi(
            title="ETT%", version=__version__, description=_ABOUT, routes=routes, servers=servers
        )
        app.state.ett_openapi = found
    return found
