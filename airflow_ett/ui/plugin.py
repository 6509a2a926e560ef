"""The plugin that Airflow loads, in every process, through the entry point ``airflow.plugins``.

Only the api-server serves the pages, so nothing of them is imported here: the FastAPI app is made
when the first request arrives.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_ett import config, listener
from airflow_ett.hooks.deployment import check_database

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[_Scope], Awaitable[None]]
_Asgi = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


class LazyApp:
    """An ASGI app that becomes :func:`airflow_ett.ui.app.create_app` at its first request."""

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Hand the request on."""
        await self._app(scope, receive, send)

    @cached_property
    def _app(self) -> _Asgi:
        app: _Asgi = importlib.import_module("airflow_ett.ui.app").create_app()
        # What the api-server has loaded by now stays. Looked through at each full collection it
        # would hold up one in ten pages by 0.2 s or more.
        gc.freeze()
        return app


def _view(destination: str, url_route: str, name: str, href: str) -> dict[str, Any]:
    return {"destination": destination, "url_route": url_route, "name": name, "href": href}


_RUN = "ett/run/{DAG_ID}?run_id={RUN_ID}"


class EttPlugin(AirflowPlugin):
    """The ETT% tabs, the fleet's page, and the listener. Addresses are relative: a base path stays.

    Airflow finds a view by its ``url_route`` alone, whatever its destination and plugin. It shows a
    view's icon without a text, or with the name a second time, so ours have none. On every page,
    and in its processes' logs, it tells why a plugin could not be loaded.
    """

    name = "airflow_ett"
    listeners = [listener]  # noqa: RUF012
    fastapi_apps = [{"app": LazyApp(), "url_prefix": "/ett", "name": "ETT%"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        _view("dag", "ett", "ETT%", "ett/dag/{DAG_ID}"),
        _view("dag_run", "ett-run", "ETT%", _RUN),
        _view(
            "task_instance", "ett-task", "ETT%", _RUN + "&task_id={TASK_ID}&map_index={MAP_INDEX}"
        ),
        _view("nav", "ett-fleet", "ETT% fleet", "ett/fleet") | {"nav_top_level": True},
    ]

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:
        """Raise :class:`ConfigurationError` where numbers would be lost."""
        check_database(config.load())
