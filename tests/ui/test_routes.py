"""Every route asks who is there; every failure is a page that says what to do."""

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from airflow_ett.api.app import is_for_programs
from airflow_ett.errors import StoreError, StoreMismatch
from airflow_ett.store import Store, open_store, upgrade
from airflow_ett.ui.app import create_app
from airflow_ett.ui.depends import current_store, get_user

Make = Callable[..., dict[str, Any]]
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


@pytest.fixture
def site(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep_report: Callable[..., None]
) -> Iterator[Site]:
    monkeypatch.setattr("airflow.api_fastapi.core_api.security.get_auth_manager", OneDagManager)
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id: None)
    site = Site(f"sqlite:///{tmp_path}/ett.db", keep_report)
    yield site
    site.store.close()


def _routes() -> list[APIRoute]:
    """The pages' routes; those for programs are walked in tests/api/test_access.py."""
    routes = create_app().routes
    assert all(isinstance(route, APIRoute) for route in routes)
    found = [route for route in routes if isinstance(route, APIRoute)]
    pages = [r for r in found if not is_for_programs(r.path) or r.path.endswith("/docs")]
    assert len(pages) == 5
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


def test_the_query_names_no_other_dag(site: Site, report: Make) -> None:
    site.keep(report(), report(job="b", dag_id="secret", run_id="not_yours"))
    assert "not_yours" not in site.client().get("/dag/ranker?dag_id=secret").text
    assert site.client().get("/dag/secret?dag_id=ranker").status_code == 403


def test_the_tab_shows_the_numbers(site: Site, report: Make, silent: Make) -> None:
    site.keep(
        report(job="b", run_id="run_b", begin_ns=2, state="running", frozen=False),
        silent(job="a", run_id="run_a", begin_ns=1, nof=0),
    )
    answer = site.client().get("/dag/ranker")
    assert answer.status_code == 200
    text = _text(answer.text)
    assert "ETT%, accelerator-hour weighted 84.0%" in text
    assert "Held 87.5% · per job 84.0%" in text
    assert "Paper 92.0%, residual 8.0 points" in text
    assert "p50 30.0 s p90 30.0 s" in text
    assert "Running Provisional" in text
    assert "Launcher only no trainer events" in text
    assert "As of 2026-11-30" in text
    assert answer.text.count('<th scope="row"') == 7 + 2
    figure = json.loads(_between(answer.text, 'id="bars-fig">', "</script>"))
    assert figure["layout"]["xaxis"]["categoryarray"] == ["run_a", "run_b"]


def test_owners_are_the_configured_ones(
    site: Site, report: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.keep(report())
    assert "night-shift" not in site.client().get("/dag/ranker").text
    monkeypatch.setenv("AIRFLOW__ETT__COMPONENT_OWNERS", "shutdown=night-shift")
    assert "Shutdown night-shift" in _text(site.client().get("/dag/ranker").text)


def test_shares_stand_beside_exactly_100(site: Site, report: Make) -> None:
    parts = dict.fromkeys(report()["components_ns"], 1)
    site.keep(report(components_ns=parts, wall_ns=7))
    page = site.client().get("/dag/ranker").text
    shown = re.findall(r'<span class="n">([\d.]+)%</span>', page)
    assert len(shown) == 7
    assert sum(round(10 * float(share)) for share in shown) == 1000


def test_without_accelerators_time_is_lost_not_hours(site: Site, report: Make) -> None:
    site.keep(report(accelerators=0))
    text = _text(site.client().get("/dag/ranker").text)
    assert "ETT%, wall-clock weighted 84.0%" in text
    assert "Lost time 2 m 00 s of 16 m 00 s held" in text
    assert "ccelerator-hour" not in text


def test_names_are_text(site: Site, report: Make) -> None:
    site.keep(report(run_id=HOSTILE, quality="partial", quality_reasons=[HOSTILE], cause=HOSTILE))
    page = site.client().get("/dag/ranker").text
    assert "<script>alert" not in page
    assert "49" not in _between(page, "Runs</h2>", "</section>")
    json.loads(_between(page, 'id="bars-fig">', "</script>"))


def test_links_are_relative(site: Site, report: Make) -> None:
    site.keep(report())
    page = site.client().get("/dag/ranker").text
    links = re.findall(r'(?:href|src|action)="([^"]*)"', page)
    assert links
    assert not [link for link in links if link.startswith("/") or "://" in link]
    assert "../../dags/ranker/runs/scheduled__2026-11-29T02%3A00" in links


def test_more_rows_on_request(site: Site, report: Make) -> None:
    site.keep(*(report(job=f"{i:02}", run_id=f"r{i}", begin_ns=100 - i) for i in range(20)))
    client = site.client()
    first = client.get("/dag/ranker").text
    assert "Show all 20 runs" in first
    assert first.count('target="_top"') == 12
    every = client.get("/dag/ranker?period=30runs&rows=all").text
    assert "Show all" not in every
    assert every.count('target="_top"') == 20


def test_a_dag_without_jobs_says_what_to_add(site: Site) -> None:
    answer = site.client().get("/dag/ranker")
    assert answer.status_code == 200
    assert "No training measured yet" in answer.text
    assert "TorchXTrainingOperator(</ins>" in answer.text
    assert "with Session() as ett:</ins>" in answer.text
    assert "# +" not in answer.text


def test_a_period_without_jobs_keeps_the_controls(site: Site, report: Make) -> None:
    site.keep(report(begin_ns=1))
    answer = site.client().get("/dag/ranker?period=7days")
    assert answer.status_code == 200
    assert "No finished or running job in this period." in answer.text
    assert '<option value="7days" selected>' in answer.text


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
    text = _text(answer.text)
    assert "GET /api/v1/jobs " in text
    assert "GET /api/v1/fleet/summary" in text
    assert "percents 0 to 100" in text
    targets = set(re.findall(r'href="#([^"]+)"', answer.text))
    assert "JobPage" in targets
    assert targets <= set(re.findall(r'<section id="([^"]+)"', answer.text))
    assert not re.findall(r'(?:src|href)="https?:', answer.text)


def _between(text: str, begin: str, end: str) -> str:
    return text.split(begin, 1)[1].split(end, 1)[0]


def _text(page: str) -> str:
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
