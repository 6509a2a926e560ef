"""All routes of the app: who is let in, and what those see who may read one Dag alone."""

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from fastapi.routing import APIRoute

from airflow_ett.storage.tokens import issue
from airflow_ett.ui.app import create_app
from tests.api.conftest import API_SECRET, SECRET_DAG, Manager

Client = Callable[..., Any]
_TOKENS = ("/api/v1/logs/", "/api/v1/events", "/api/v1/clock", "/api/v1/tokens/")
_ASKED = {"/timeline/{dag_id}": "?job={job}"}
ROUTES = [
    (method, route.path + _ASKED.get(route.path, ""))
    for route in create_app().routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods)
]
OF_TOKENS = [(m, p) for m, p in ROUTES if p.startswith(_TOKENS)]
OF_USERS = [(m, p) for m, p in ROUTES if (m, p) not in OF_TOKENS]


def _at(path: str, job: str, dag_id: str = "ranker") -> str:
    return path.replace("{name:path}", "cursor").format(job=job, dag_id=dag_id)


def _sent(client: Any, method: str, path: str, **more: Any) -> Any:
    params = {"folder": "launcher"} if path.endswith(("/files", "/events")) else None
    return client.request(method, path, params=params, **more)


def test_the_walk_covers_every_route() -> None:
    assert len(ROUTES) == len(create_app().routes)
    assert len(OF_TOKENS) == 8
    assert {path for _, path in OF_USERS} == {
        "/dag/{dag_id}",
        "/run/{dag_id}",
        "/timeline/{dag_id}?job={job}",
        "/pulse/{dag_id}",
        "/fleet",
        "/guide",
        "/static/plotly.min.js",
        "/api/v1/docs",
        "/api/v1/openapi.json",
        "/api/v1/jobs",
        "/api/v1/jobs/{job}",
        "/api/v1/jobs/{job}/events",
        "/api/v1/jobs/{job}/phases",
        "/api/v1/dags/{dag_id}/summary",
        "/api/v1/fleet/summary",
        "/api/v1/fleet/dags",
        "/api/v1/fleet/days",
        "/api/v1/components",
        "/api/v1/health",
        "/metrics",
    }


@pytest.mark.parametrize(("method", "path"), OF_USERS)
@pytest.mark.parametrize("token", [None, "old", "forged"])
def test_nobody_is_let_in_without_a_session(
    client: Client,
    jobs: dict[str, str],
    manager: Manager,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    token: str | None,
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__METRICS_TOKEN", "scraper")
    answer = client(token).request(method, _at(path, jobs["ranker run-0"]))
    # Airflow itself answers 403 to what is no token of its own; for a scraper it is 401.
    assert answer.status_code == (403 if token == "forged" and path != "/metrics" else 401)
    assert manager.asked == []
    is_page = not path.startswith(("/api", "/metrics")) or path.endswith("/docs")
    assert answer.headers["content-type"].startswith("text/html" if is_page else "application/json")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "run-0" not in answer.text


@pytest.mark.parametrize(("method", "path"), OF_USERS)
def test_who_may_read_is_let_in(
    client: Client, jobs: dict[str, str], method: str, path: str
) -> None:
    answer = client("anna").request(method, _at(path, jobs["ranker run-0"]))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert SECRET_DAG not in answer.text
    by_cookie = client()
    by_cookie.cookies.set("_token", "anna")
    assert by_cookie.request(method, _at(path, jobs["ranker run-0"])).status_code == 200


@pytest.mark.parametrize(("method", "path"), [(m, p) for m, p in OF_USERS if "{" in p])
def test_a_dag_without_the_right_and_one_that_is_none_look_the_same(
    client: Client, jobs: dict[str, str], method: str, path: str
) -> None:
    hidden, none = jobs[f"{SECRET_DAG} run-0"], "0" * 20
    answers = [
        client("anna").request(method, _at(path, job, dag_id))
        for job, dag_id in ((hidden, SECRET_DAG), (none, "no-such-dag"))
    ]
    assert {answer.status_code for answer in answers} == {403 if "{dag_id}" in path else 404}
    texts = [
        answer.text.replace(given, "?")
        for answer, given in zip(answers, (hidden, none), strict=True)
    ]
    texts = [text.replace(SECRET_DAG, "?").replace("no-such-dag", "?") for text in texts]
    assert texts[0] == texts[1]
    headers = [{k: v for k, v in a.headers.items() if k != "content-length"} for a in answers]
    assert headers[0] == headers[1]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs",
        f"/api/v1/jobs?dag_id={SECRET_DAG}",
        f"/api/v1/jobs?dag_id={SECRET_DAG}&format=csv",
        "/api/v1/fleet/summary?days=3000",
        f"/api/v1/fleet/summary?days=3000&dag_id={SECRET_DAG}",
        "/api/v1/fleet/dags?days=3000",
        "/api/v1/fleet/dags?days=3000&format=csv",
        "/metrics",
    ],
)
def test_rows_of_other_dags_count_nowhere(client: Client, manager: Manager, path: str) -> None:
    """What a user sees is the same as if the other Dag had no jobs at all."""
    seen = client("anna").get(path).text
    manager.rights["anna"] = {"ranker", "never-trained"}
    assert client("anna").get(path).text == seen
    manager.rights["anna"] = {"ranker", SECRET_DAG}
    assert client("anna").get(path).text != seen
    manager.rights["anna"] = set()
    assert "ranker" not in client("anna").get(path).text


def test_a_right_to_the_dag_but_not_to_its_runs_is_none(client: Client, manager: Manager) -> None:
    def only_ranker(**asked: Any) -> bool:
        return bool(asked["details"].id == "ranker")

    manager.is_authorized_dag = only_ranker  # type: ignore[method-assign]
    dags = client("root").get("/api/v1/fleet/dags?days=3000").json()["dags"]
    assert [dag["dag_id"] for dag in dags] == ["ranker"]


@pytest.mark.parametrize(("method", "path"), OF_TOKENS)
def test_the_jobs_own_routes_know_no_users(
    client: Client, jobs: dict[str, str], method: str, path: str
) -> None:
    job = jobs["ranker run-4"]
    at = _at(path, job)
    for token in (None, "anna", "root", issue("x" * 40, job, "launcher", 60)):
        assert _sent(client(token), method, at).status_code == 401
    expired = issue(API_SECRET, job, "launcher", 60, now_s=time.time() - 61)
    assert _sent(client(expired), method, at).status_code == 401
    by_cookie = client()
    by_cookie.cookies.set("_token", "root")
    assert _sent(by_cookie, method, at).status_code == 401
    other = _sent(client(issue(API_SECRET, "0" * 20, "launcher", 60)), method, at)
    assert other.status_code == 403 or "{job}" not in path
    good = _sent(client(issue(API_SECRET, job, "launcher", 60)), method, at)
    assert good.status_code in (200, 204, 404), good.text


def test_a_jobs_token_opens_nothing_else(client: Client, jobs: dict[str, str]) -> None:
    job = jobs["ranker run-0"]
    for _, path in OF_USERS:
        answer = client(issue(API_SECRET, job, "launcher", 60)).get(_at(path, job))
        assert answer.status_code in (401, 403, 404)
        assert "run-0" not in answer.text


def test_a_token_beats_a_cookie(client: Client, jobs: dict[str, str]) -> None:
    mixed = client("nemo")
    mixed.cookies.set("_token", "root")
    assert mixed.get("/api/v1/jobs").json()["jobs"] == []
