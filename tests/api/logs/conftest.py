"""The job logs' routes, served for real, on SQLite and on a real Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests.api.server import Api, serving
from tests.store.conftest import empty_url, postgres, url  # noqa: F401

JOB = "0123456789abcdef0123"


@pytest.fixture
def api(url: str) -> Iterator[Api]:  # noqa: F811
    """One API server over an empty database."""
    with serving(url) as served:
        yield served


@pytest.fixture
def ask(api: Api) -> Callable[..., requests.Response]:
    """Send one request as it is: ``ask("GET", "/clock", role="trainer")``; without a role, without
    a token."""

    def send(
        method: str, path: str, *, role: str = "", token: str = "", **rest: Any
    ) -> requests.Response:
        headers = dict(rest.pop("headers", {}))
        if role:
            token = api.token(JOB, role)()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return requests.request(method, api.base + path, headers=headers, timeout=20, **rest)

    return send
