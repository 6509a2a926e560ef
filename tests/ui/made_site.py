"""The app with a store of made-up jobs, as one user sees it."""

import html
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from fastapi.testclient import TestClient

from airflow_ett.store import Store, open_store, upgrade
from airflow_ett.ui.app import create_app
from airflow_ett.ui.depends import current_store, get_user

HOSTILE = '"><script>alert(1)</script>$bg{{7*7}}'


class Site:
    """The app with a store of made-up jobs, and a user who may read the Dag ``ranker`` alone."""

    def __init__(self, url: str, keep_report: Callable[..., None]) -> None:
        upgrade(url)
        self.store = open_store(url)
        self.error: Exception | None = None
        self.asked = 0
        self._keep = keep_report

    def keep(self, *reports: dict[str, Any]) -> None:
        """Store jobs as their reports tell them."""
        for report in reports:
            self._keep(self.store, report)

    def client(self, *, signed_in: bool = True) -> TestClient:
        app = create_app()
        app.dependency_overrides[current_store] = self._opened
        if signed_in:
            user = SimpleNamespace(get_name=lambda: "m.okafor")
            app.dependency_overrides[get_user] = lambda: user
        return TestClient(app, raise_server_exceptions=False)

    def _opened(self) -> Store:
        self.asked += 1
        if self.error:
            raise self.error
        return self.store


class OneDagManager:
    """An auth manager under which a user may read the runs of ``ranker``, and nothing else."""

    def is_authorized_dag(
        self, *, method: str, access_entity: Any, details: Any, user: Any
    ) -> bool:
        asked = (method, access_entity, details.id)
        return asked == ("GET", DagAccessEntity.RUN, "ranker")


def between(text: str, begin: str, end: str) -> str:
    """Return what stands between two texts."""
    return text.split(begin, 1)[1].split(end, 1)[0]


def text_of(page: str) -> str:
    """Return what a reader sees of a page, on one line."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
