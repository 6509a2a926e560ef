"""The plugin that Airflow loads, in every process, through the entry point ``airflow.plugins``.

Only the api-server serves the pages, so nothing of them is imported here: the FastAPI app is made
when the first request arrives.
"""

from __future__ import annotations

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
        return app


class EttPlugin(AirflowPlugin):
    """The ETT% tab of every Dag, and the listener. Addresses are relative to keep a base path.

    Airflow tells on every page, and in its processes' logs, why a plugin could not be loaded.
    """

    name = "airflow_ett"
    listeners = [listener]  # noqa: RUF012
    fastapi_apps = [{"app": LazyApp(), "url_prefix": "/ett", "name": "ETT%"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "ETT%",
            "href": "ett/dag/{DAG_ID}",
            "destination": "dag",
            "url_route": "ett",
        }
    ]

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:
        """Raise :class:`ConfigurationError` where numbers would be lost."""
        check_database(config.load())
