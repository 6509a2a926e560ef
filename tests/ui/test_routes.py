"""Every route asks who is there; every failure is a page that says what to do."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from fastapi.routing import APIRoute

from airflow_ett.api.app import is_for_programs
from airflow_ett.errors import StoreError, StoreMismatch
from airflow_ett.ui.app import create_app
from tests.ui.made_site import HOSTILE, Site, text_of

Make = Callable[..., dict[str, Any]]


def _routes() -> list[APIRoute]:
    """The pages' routes; those for programs are walked in tests/api/test_access.py."""
    routes = create_app().routes
    assert all(isinstance(route, APIRoute) for route in routes)
    found = [route for route in routes if isinstance(route, APIRoute)]
    pages = [r for r in found if not is_for_programs(r.path) or r.path.endswith("/docs")]
    assert {"/dag/{dag_id}", "/run/{dag_id}", "/fleet"} <= {route.path for route in pages}
    return pages


@pytest.mark.parametrize("route", _routes(), ids=lambda route: route.path)
def test_every_route_asks_who_is_there(site: Site, route: APIRoute) -> None:
    client = site.client(signed_in=False)
    for method in route.methods:
        answer = client.request(method, route.path.format(dag_id="ranker"))
        assert answer.status_code == 401
        assert "Your session has ended" in answer.text
    assert site.asked == 0


@pytest.mark.parametrize(
    "route", [r for r in _routes() if "{dag_id}" in r.path], ids=lambda route: route.path
)
@pytest.mark.parametrize("dag_id", ["secret", "no_such_dag", "~", HOSTILE.replace("/", "")])
def test_a_dag_without_the_right_is_denied(site: Site, route: APIRoute, dag_id: str) -> None:
    answer = site.client().get(route.path.replace("{dag_id}", dag_id))
    assert answer.status_code == 403
    assert "You have no access to this Dag's runs" in answer.text
    assert "m.okafor" in answer.text
    assert html.escape(dag_id).replace("&quot;", "&#34;") in answer.text
    assert site.asked == 0


def test_a_store_that_is_away(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.error = StoreError("The ETT database postgresql://db.example/ett failed: refused")
    answer = site.client().get("/dag/ranker")
    assert answer.status_code == 503
    assert "The ETT% store does not answer" in answer.text
    assert "db.example" not in answer.text
    reference = re.findall(r"<code>([0-9a-f]{8})</code>", answer.text)[0]
    assert reference in caplog.text
    assert "refused" in caplog.text


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("0000", "It is at revision <code>0000</code>, this version needs <code>0001</code>."),
        (None, "It has no tables yet."),
        ("0002", "The ETT% store is newer than this page"),
    ],
)
def test_a_store_of_another_version(site: Site, found: str | None, expected: str) -> None:
    site.error = StoreMismatch("mismatch", found=found, needed="0001")
    answer = site.client().get("/dag/ranker")
    assert answer.status_code == 503
    assert expected in answer.text


def test_anything_else_hides_the_error(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.error = KeyError("secret detail")
    answer = site.client().get("/dag/ranker")
    assert answer.status_code == 500
    assert "This page could not be made" in answer.text
    assert "secret detail" not in answer.text
    reference = re.findall(r"<code>([0-9a-f]{8})</code>", answer.text)[0]
    assert reference in caplog.text


def test_the_chart_script_is_served_from_the_wheel(site: Site) -> None:
    answer = site.client().get("/static/plotly.min.js?v=1")
    assert answer.status_code == 200
    assert "javascript" in answer.headers["content-type"]
    assert "immutable" in answer.headers["cache-control"]
    assert "plotly.js v" in answer.text[:200]


def test_pages_load_nothing_from_elsewhere(site: Site, report: Make) -> None:
    site.keep(report())
    policy = site.client().get("/dag/ranker").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'sha256-" in policy


def test_the_api_is_described_on_a_page_of_our_own(site: Site) -> None:
    answer = site.client().get("/api/v1/docs")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = text_of(answer.text)
    assert "GET /api/v1/jobs " in text
    assert "GET /api/v1/fleet/summary" in text
    assert "percents 0 to 100" in text
    targets = set(re.findall(r'href="#([^"]+)"', answer.text))
    assert "JobPage" in targets
    assert targets <= set(re.findall(r'<section id="([^"]+)"', answer.text))
    assert not re.findall(r'(?:src|href)="https?:', answer.text)
