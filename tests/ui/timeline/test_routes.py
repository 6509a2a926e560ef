"""From the logs of a job to its figure, for those who may read its Dag."""

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

pytest.importorskip("airflow.api_fastapi")

from airflow_ett.store import Store, queries, tables


@pytest.fixture
def job(site: Any, tmp_path: Path, job_writer: Any) -> str:
    """A job of the Dag that failed once, and one of a Dag that the user may not read."""
    write = job_writer(tmp_path / "runs", f"sqlite:///{tmp_path}/ett.db").write
    write("ranker", "r1", time.time_ns() - 3600 * 10**9, failures=1)
    write("secret", "r2", time.time_ns() - 3600 * 10**9)
    return _job(site.store, "ranker")


def _job(store: Store, dag_id: str) -> str:
    (row,) = queries.jobs(store, dag_ids=[dag_id])
    return row.job


def _get(site: Any, job: str, dag_id: str = "ranker") -> Any:
    return site.client().get(f"/timeline/{dag_id}", params={"job": job, "as_of": "1"})


def test_the_figure_is_what_the_logs_say(site: Any, job: str) -> None:
    for _ in range(2):
        answer = _get(site, job)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        figure = answer.json()
        (row,) = queries.jobs(site.store, dag_ids=["ranker"])
        bars = [one for one in figure["data"] if one.get("width") == 0.44]
        assert sum(map(sum, (one["x"] for one in bars))) == pytest.approx(
            row.wall_ns / 10**6, abs=1
        )
        assert figure["layout"]["yaxis2"]["ticktext"] == ["2 · relaunch", "1 · first"]
        (failure,) = (one for one in figure["data"] if one["name"] == "failure")
        assert failure["text"] == ["  Preempted"]


def test_a_job_of_another_dag_looks_like_one_that_does_not_exist(site: Any, job: str) -> None:
    other = _job(site.store, "secret")
    answers = [_get(site, other), _get(site, "no such job")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].text == answers[1].text
    assert _get(site, other, "secret").status_code == 403


def test_a_job_of_another_deployment_is_none(
    site: Any, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", "staging")
    assert _get(site, job).status_code == 404


def test_without_a_job_the_question_is_none(site: Any) -> None:
    assert site.client().get("/timeline/ranker").status_code == 422


def test_once_the_events_are_removed_it_says_so(
    site: Any, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__KEEP_EVENTS", "90d")
    pruned = update(tables.job).values(pruned_events=10_000)
    site.store.write(lambda connection: connection.execute(pruned))
    site.store.write(lambda connection: connection.execute(delete(tables.event)))
    answer = _get(site, job)
    assert answer.status_code == 200
    (word,) = answer.json()["layout"]["annotations"]
    assert word["text"] == "The events were removed after 90 days; the tables keep the numbers."


def test_a_failure_tells_no_secret(site: Any, job: str) -> None:
    ended = tables.event.c.kind == "attempt_ended"
    proof = {"text": "lost https://me:hunter2@db.example/x?token=hunter2"}
    data = {"cause": "preempted", "evidence": proof}
    told = update(tables.event).where(ended, tables.event.c.submission == 1).values(data=data)
    site.store.write(lambda connection: connection.execute(told))
    answer = _get(site, job)
    assert "db.example" in answer.text
    assert "hunter2" not in answer.text
