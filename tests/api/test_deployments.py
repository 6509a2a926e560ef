"""Airflows that share one ETT database: each shows its own deployment's jobs and no other's."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from sqlalchemy import delete, select

from airflow_ett.fleet import roll_up
from airflow_ett.store import open_store, tables
from tests.api.conftest import BEGIN, OTHER, OTHER_RUN, Manager, S
from tests.api.test_access import OF_USERS

Client = Callable[..., Any]
DAGS = ("ranker", "never-trained")
QUERIES = ("", "?days=3000", "?format=csv", "?dag_id=never-trained", f"?deployment={OTHER}")
NONE = "0" * 20


@pytest.fixture(params=["from the jobs", "from the rollup"])
def shared(
    request: pytest.FixtureRequest, filled_url: str, tmp_path: Path
) -> tuple[str, str, list[str]]:
    """A shared database, the same one without the other Airflow's rows, and all job ids."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("shared", "alone")]
    for url in urls:
        shutil.copy(filled_url.removeprefix("sqlite:///"), url.removeprefix("sqlite:///"))
    jobs: list[str] = []
    for url in urls:
        store = open_store(url)
        if request.param == "from the rollup":
            roll_up(store, timezone="UTC")
        with store.read() as connection:
            jobs = jobs or list(connection.scalars(select(tables.job.c.job)))
        if url == urls[1]:
            for table in (tables.job, tables.rollup):
                others = delete(table).where(table.c.deployment == OTHER)
                store.write(lambda connection, others=others: connection.execute(others))
        store.close()
    return urls[0], urls[1], jobs


def _asked(jobs: list[str]) -> Iterator[str]:
    for _, path in OF_USERS:
        for query in QUERIES:
            for job in (*jobs, NONE) if "{job}" in path else (NONE,):
                for dag_id in DAGS if "{dag_id}" in path else DAGS[:1]:
                    yield path.format(job=job, dag_id=dag_id) + query


@pytest.mark.parametrize("token", ["anna", "root", "a-scraper"])
def test_every_route_is_as_if_the_database_were_ones_own(
    client: Client,
    manager: Manager,
    shared: tuple[str, str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    token: str,
) -> None:
    """What is told is the same as without the others' rows, to the last byte."""
    # Pages say when they were made.
    monkeypatch.setattr("time.time_ns", lambda: BEGIN + 30 * 86_400 * S)
    monkeypatch.setenv("AIRFLOW__ETT__METRICS_TOKEN", "a-scraper")
    monkeypatch.setenv("AIRFLOW__ETT__METRICS_DAGS", "rank*, never-*")
    manager.rights["anna"] |= {"never-trained"}
    told = []
    for url in shared[:2]:
        monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
        me = client(token)
        told.append({path: _whole(me.get(path)) for path in _asked(shared[2])})
    assert told[0] == told[1]
    assert not [path for path, (_, text, _) in told[0].items() if OTHER_RUN in text]
    assert any("run-0" in text or "ranker" in text for _, text, _ in told[0].values())


def _whole(answer: Any) -> tuple[int, str, dict[str, str]]:
    return answer.status_code, answer.text, dict(answer.headers)


def test_a_job_of_another_airflow_looks_like_none(client: Client, jobs: dict[str, str]) -> None:
    job = jobs[f"ranker {OTHER_RUN}"]
    for path in ("", "/phases", "/events", "/events?limit=1"):
        theirs, none = (client("root").get(f"/api/v1/jobs/{one}{path}") for one in (job, NONE))
        assert theirs.status_code == none.status_code == 404
        assert theirs.text.replace(job, NONE) == none.text


def test_each_airflow_sees_its_own(
    client: Client, jobs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' rows are there, and theirs to see: the same database, asked by that Airflow."""
    monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", OTHER)
    anna = client("anna")
    listed = anna.get("/api/v1/jobs").json()["jobs"]
    assert {one["run_id"] for one in listed} == {OTHER_RUN, f"{OTHER_RUN}-2"}
    assert anna.get(f"/api/v1/jobs/{jobs[f'ranker {OTHER_RUN}']}").status_code == 200
    assert anna.get(f"/api/v1/jobs/{jobs['ranker run-0']}").status_code == 404
    summary = anna.get("/api/v1/dags/ranker/summary?days=3000").json()
    assert (summary["jobs"], summary["running"]) == (1, 1)
    for path in ("/dag/ranker", "/metrics"):
        text = anna.get(path).text
        assert (OTHER_RUN if path == "/dag/ranker" else f'deployment="{OTHER}"') in text
        assert "run-0" not in text
        assert 'deployment="default"' not in text
