"""The API inside a real Airflow under a base path: its logins, its cookies, its rights."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests

from airflow_ett.events import RunDir
from airflow_ett.store import ingest_root, open_store, upgrade

pytest.importorskip("airflow")
pytestmark = pytest.mark.airflow

BASE_PATH = "/team-a"
MANAGER = """
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class Closing(SimpleAuthManager):
    def is_authorized_dag(self, *, method, user, access_entity=None, details=None):
        if user.username == "viewer" and details is not None and details.id == "closed":
            return False
        return super().is_authorized_dag(
            method=method, user=user, access_entity=access_entity, details=details
        )
"""
DAGS = """
from airflow.sdk import DAG

for name in ("ranker", "closed"):
    with DAG(name, schedule=None) as globals()[name]:
        pass
"""


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, repo: Path, write_job: Callable[..., RunDir]
) -> Iterator[Any]:
    """Airflow at /team-a with two Dags that have trained; viewer may not read one of them."""
    from airflow_ett.demo.stack import AirflowStack

    home = tmp_path_factory.mktemp("airflow-api")
    (home / "dags").mkdir()
    (home / "dags" / "dags.py").write_text(DAGS)
    (home / "closing.py").write_text(MANAGER)
    url = f"sqlite:///{home}/ett.db"
    upgrade(url)
    for dag_id in ("ranker", "closed"):
        write_job(home / "runs", dag_id=dag_id)
    store = open_store(url)
    ingest_root(store, home / "runs")
    store.close()
    stack = AirflowStack(
        home,
        dags=home / "dags",
        users={"admin": "admin", "viewer": "viewer"},
        components=("api-server", "dag-processor"),
        env={
            "AIRFLOW__CORE__AUTH_MANAGER": "closing.Closing",
            "AIRFLOW__ETT__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__ETT__METRICS_TOKEN": "a-scraper",
            "AIRFLOW__ETT__METRICS_DAGS": "rank*",
            "PYTHONPATH": f"{home}:{repo}",
        },
    )
    stack.url += BASE_PATH
    stack.env["AIRFLOW__API__BASE_URL"] = stack.url
    stack.start()
    try:
        for dag_id in ("ranker", "closed"):
            stack.api.wait_for_dag(dag_id)
        yield stack
    finally:
        stack.stop()


def _token(stack: Any, user: str) -> str:
    return str(stack.login(user).token)


def _get(stack: Any, path: str, token: str | None = None, **more: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return requests.get(f"{stack.url}/ett{path}", headers=headers, timeout=30, **more)


def test_airflows_logins_and_rights_are_the_apis(stack: Any) -> None:
    for path in ("/api/v1/jobs", "/api/v1/fleet/summary", "/api/v1/docs", "/metrics"):
        assert _get(stack, path).status_code == 401
    admin, viewer = _token(stack, "admin"), _token(stack, "viewer")
    every = _get(stack, "/api/v1/jobs", admin).json()["jobs"]
    assert {job["dag_id"] for job in every} == {"ranker", "closed"}
    for credentials in ({"token": viewer}, {"cookies": {"_token": viewer}}):
        seen = _get(stack, "/api/v1/jobs", **credentials).json()["jobs"]
        assert {job["dag_id"] for job in seen} == {"ranker"}
    period = {"days": 3, "until": "2026-09-22"}
    assert [
        _get(stack, "/api/v1/fleet/summary", token, params=period).json()["jobs"]
        for token in (admin, viewer)
    ] == [2, 1]
    hidden = next(job["job"] for job in every if job["dag_id"] == "closed")
    answers = [_get(stack, f"/api/v1/jobs/{job}", viewer) for job in (hidden, "0" * 20)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].text.replace(hidden, "") == answers[1].text.replace("0" * 20, "")
    assert _get(stack, f"/api/v1/jobs/{hidden}", admin).status_code == 200
    assert _get(stack, "/api/v1/dags/closed/summary", viewer).status_code == 403
    page = _get(stack, "/dag/closed", viewer)
    assert (page.status_code, page.headers["content-type"].split(";")[0]) == (403, "text/html")


def test_the_document_leads_to_the_routes(stack: Any) -> None:
    viewer = _token(stack, "viewer")
    address = f"{stack.url}/ett/api/v1/openapi.json"
    told = _get(stack, "/api/v1/openapi.json", viewer).json()
    server = urljoin(address, told["servers"][0]["url"]).rstrip("/")
    answer = requests.get(
        f"{server}/api/v1/health", headers={"Authorization": f"Bearer {viewer}"}, timeout=10
    )
    assert answer.json()["status"] == "ok"
    page = _get(stack, "/api/v1/docs", viewer)
    assert "GET /api/v1/jobs" in page.text
    assert "://" not in page.text.replace("http://www.w3.org", "")
    missing = _get(stack, "/api/v1/nothing", viewer)
    assert missing.json() == {"detail": "Not Found"}


def test_a_scraper_sees_the_dags_of_its_token(stack: Any) -> None:
    text = _get(stack, "/metrics", "a-scraper").text
    assert 'dag_id="ranker"' in text
    assert "closed" not in text
    assert _get(stack, "/metrics", "a-scrapes").status_code == 401
    assert 'dag_id="closed"' in _get(stack, "/metrics", _token(stack, "admin")).text
    assert "closed" not in _get(stack, "/metrics", _token(stack, "viewer")).text
