"""Tokens at the routes: each route asks for one, and a token is good for its job and role alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import update

from airflow_ett.api.guard import configured
from airflow_ett.api.logs import RENEWED_S, router
from airflow_ett.events import Event, encode
from airflow_ett.storage.tokens import issue, read
from airflow_ett.store import tables, upgrade
from tests.api.logs.conftest import JOB
from tests.api.server import SECRET, Api, serving_app

Ask = Callable[..., requests.Response]
OTHER = "f" * 20
S = 10**9


@pytest.fixture
def url(tmp_path: Path) -> str:
    """SQLite alone: who is let in is settled before a database is asked."""
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    return url


def _line(writer: str = "trainer-1.0.0-r0-p7", job: str = JOB, seq: int = 0) -> bytes:
    return encode(Event(job, writer, seq, 10**18, "note"))


def _routes() -> list[tuple[str, str]]:
    return [
        (method, route.path.replace("{job}", JOB).replace("{name:path}", "cursor"))
        for route in router().routes
        if isinstance(route, APIRoute)
        for method in route.methods
    ]


def test_all_routes_ask_for_a_token(api: Api, ask: Ask) -> None:
    """Walks them, so that none can be forgotten."""
    forged = issue("some-other-secret-of-32-characters", JOB, "launcher", 60)
    old = issue(SECRET, JOB, "launcher", 60, now_s=1_700_000_000)
    assert len(_routes()) == 8
    for method, path in _routes():
        query = {"folder": "nodes"} if method == "GET" else None
        for token, problem in (("", "no token"), (forged, "forged"), (old, "has expired")):
            answer = ask(method, path, token=token, params=query)
            assert answer.status_code == 401, (method, path)
            assert problem in answer.json()["detail"]
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.headers["ETT-API"] == "1"
        basic = ask(method, path, headers={"Authorization": "Basic YTpi"}, params=query)
        assert basic.status_code == 401
        other = ask(method, path, token=api.token(OTHER)(), params=query, data=_line())
        if JOB in path or path == "/events":
            assert other.status_code == 403, (method, path)
            assert OTHER in other.json()["detail"]
        else:
            assert other.status_code == 200
        allowed = ask(method, path, role="launcher", params=query, data=_line())
        assert allowed.status_code in (200, 204, 404), (method, path)
        assert SECRET not in allowed.text + other.text


def test_a_trainers_token_reads_all_and_writes_its_part(api: Api, ask: Ask) -> None:
    launcher = api.storage(JOB)
    launcher.create("launcher/claims/00000001.json", b"{}")
    claim = f"/logs/{JOB}/files/launcher/claims/00000001.json"
    assert ask("GET", claim, role="trainer").content == b"{}"

    def put(name: str) -> int:
        path = f"/logs/{JOB}/files/{name}"
        return ask("PUT", path, role="trainer", data=b"x").status_code

    own = ["nodes/heartbeat-1.0-n0", "replies/1.0.0-n0.json", "cursor", ".lease/1"]
    assert [put(name) for name in own] == [204] * 4
    others = ["launcher/claims/00000002.json", "g1", "cursors", "Nodes/x", "nodes", "checkpoints/x"]
    assert [put(name) for name in others] == [403] * 6
    assert ask("DELETE", f"/logs/{JOB}/files/cursor", role="trainer").status_code == 403
    assert launcher.read("cursor") == b"x"
    assert [e.name for e in launcher.entries("launcher/claims")] == ["00000001.json"]


def test_a_trainer_speaks_for_no_launcher(api: Api, ask: Ask) -> None:
    for writer in ("launcher-1", "launcher-x", "airflow-17", "publish-t-1-1"):
        answer = ask("POST", "/events", role="trainer", data=_line(writer))
        assert answer.status_code == 403
        assert writer in answer.json()["detail"]
        mixed = _line(f"trainer-beside-{writer}") + _line(writer, seq=1)
        told = ask("POST", "/events", role="trainer", data=mixed).json()
        assert told["new"] == 1
        assert [(bad["line"], writer in bad["problem"]) for bad in told["rejected"]] == [(2, True)]
        assert list(api.storage(JOB).events("launcher")) == []
    ended = encode(Event(JOB, "trainer-1.0.0-r0-p7", 9, 10**18, "job_ended"))
    answer = ask("POST", "/events", role="trainer", data=ended)
    assert answer.status_code == 403
    assert "job_ended" in answer.json()["detail"]
    assert ask("POST", "/events", role="launcher", data=_line("launcher-1")).json()["new"] == 1


def test_a_token_is_renewed_for_a_day_after_the_job_has_ended(api: Api, ask: Ask) -> None:
    old = issue(SECRET, JOB, "trainer", 1000, now_s=time.time() - 600)
    new = ask("POST", "/tokens/renew", token=old).json()["token"]
    former, latter = read(old), read(new)
    assert former is not None
    assert latter is not None
    assert (latter.job, latter.role, latter.life_s) == (former.job, former.role, former.life_s)
    assert latter.expires > former.expires
    ended = {"state": "succeeded", "cause": None}
    now_ns = api.storage(JOB).now_ns()
    log = [
        Event(JOB, "launcher-1", 0, now_ns - 2 * RENEWED_S * S, "job_opened"),
        Event(JOB, "launcher-1", 1, now_ns - RENEWED_S * S + 60 * S, "job_ended", data=ended),
    ]
    api.storage(JOB).append("launcher/e00000001.jsonl", log)
    assert ask("POST", "/tokens/renew", token=new).status_code == 200
    job = tables.job
    earlier = update(job).where(job.c.job == JOB).values(end_ns=job.c.end_ns - 61 * S)
    api.store.write(lambda connection: connection.execute(earlier))
    answer = ask("POST", "/tokens/renew", token=new)
    assert answer.status_code == 403
    assert "ended more than a day ago" in answer.json()["detail"]


def _configured() -> requests.Response:
    app = FastAPI()
    app.include_router(router(configured))
    headers = {"Authorization": f"Bearer {issue(SECRET, JOB, 'launcher', 60)}"}
    with serving_app(app) as address:
        return requests.get(f"{address}/clock", headers=headers, timeout=20)


def test_it_is_configured_by_airflow_ett_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
    monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", SECRET)
    assert _configured().json()["now_ns"] > 0


def test_without_a_secret_the_option_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
    for secret, problem in (("", "is not set"), ("short", "32 characters")):
        monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", secret)
        answer = _configured()
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("[ett] api_secret: ")
        assert problem in answer.json()["detail"]


def test_a_database_that_is_away_is_no_secret_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither missing tables nor a wrong password tell a trainer where the database is."""
    monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", SECRET)
    for database in (
        f"sqlite:///{tmp_path}/none.db",
        "postgresql://anna:hidden@127.0.0.1:1/nowhere",
    ):
        monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", database)
        monkeypatch.setattr("airflow_ett.api.guard._PATIENCE_S", 0.1)
        answer = _configured()
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert "The ETT database" in answer.json()["detail"]
        assert len(answer.json()["reference"]) == 8
        assert "127.0.0.1" not in answer.text
        assert "hidden" not in answer.text
