"""Summaries, the ranking, the components, and what happens when the database is away."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from airflow_ett.metric import COMPONENTS
from tests.api.conftest import SECRET_DAG, S

Client = Callable[..., Any]
PERIOD = {"days": 30, "until": "2026-09-30"}


def test_a_dags_summary_adds_up_what_ended(client: Client) -> None:
    found = client("anna").get("/api/v1/dags/ranker/summary", params=PERIOD).json()
    assert found["period"] == {"first": "2026-09-01", "last": "2026-09-30", "timezone": "UTC"}
    assert (found["jobs"], found["measured"], found["running"]) == (4, 4, 1)
    assert (found["attempts"], found["failures"]) == (8, 4)
    assert found["failures_by_cause"] == {"application": 4}
    jobs = client("anna").get("/api/v1/jobs?state=succeeded").json()["jobs"]
    for name in ("wall_ns", "held_ns", "effective_ns"):
        assert found[name] == sum(job[name] for job in jobs)
    assert sum(part["ns"] for part in found["components"]) == found["wall_ns"]
    assert sum(part["share_pct"] for part in found["components"]) == pytest.approx(100)
    assert [part["component"] for part in found["components"]] == list(COMPONENTS)
    assert found["ett_pct"] == pytest.approx(100 * found["effective_ns"] / found["wall_ns"])
    assert found["ett_pct_held"] == pytest.approx(100 * found["effective_ns"] / found["held_ns"])
    assert found["ett_pct_per_job"] == pytest.approx(jobs[0]["ett_pct"], abs=1e-4)
    lost = 2 * (found["held_ns"] - found["effective_ns"]) // 1_000_000
    assert found["lost_accelerator_ms"] == lost
    assert found["released_accelerator_ms"] == 2 * 30_000
    assert (found["tts_mean_ns"], found["ttr_mean_ns"], found["recoveries"]) == (10 * S, 40 * S, 4)


def test_a_period_without_jobs_knows_nothing(client: Client) -> None:
    params = {"days": 1, "until": "2026-01-01"}
    found = client("anna").get("/api/v1/dags/ranker/summary", params=params).json()
    assert (found["jobs"], found["wall_ns"], found["failures"]) == (0, 0, 0)
    unknown = ("ett_pct", "ett_pct_held", "ett_pct_per_job", "tts_mean_ns", "ttr_mean_ns")
    assert {found[name] for name in unknown} == {None}


def test_the_fleet_is_weighted_by_accelerators(client: Client) -> None:
    anna = client("anna").get("/api/v1/fleet/summary", params=PERIOD).json()
    root = client("root").get("/api/v1/fleet/summary", params=PERIOD).json()
    one = client("root").get("/api/v1/fleet/summary", params={**PERIOD, "dag_id": SECRET_DAG})
    assert (anna["jobs"], root["jobs"], one.json()["jobs"]) == (4, 6, 2)
    assert root["wall_ns"] == anna["wall_ns"] + one.json()["wall_ns"]
    weighted = (2 * anna["effective_ns"] + 64 * one.json()["effective_ns"]) // 1_000_000
    effective = next(part for part in root["components"] if part["component"] == "effective")
    assert effective["accelerator_ms"] == weighted


def test_dags_are_ranked_by_what_they_lost(client: Client) -> None:
    found = client("root").get("/api/v1/fleet/dags", params=PERIOD).json()
    assert found["total"] == 2
    assert [dag["dag_id"] for dag in found["dags"]] == [SECRET_DAG, "ranker"]
    first = found["dags"][0]
    assert (first["jobs"], first["failures"], first["running"]) == (2, 2, 0)
    assert (first["largest_loss"], first["owner"]) == ("scheduling", "cluster")
    text = client("root").get("/api/v1/fleet/dags", params={**PERIOD, "format": "csv"}).text
    assert text.splitlines()[1].startswith(f"default,{SECRET_DAG},2,")
    short = client("root").get("/api/v1/fleet/dags", params={**PERIOD, "limit": 1}).json()
    assert (short["total"], len(short["dags"])) == (2, 1)


def test_the_days_add_up_to_the_fleet(client: Client) -> None:
    fleet = client("root").get("/api/v1/fleet/summary", params=PERIOD).json()
    found = client("root").get("/api/v1/fleet/days", params=PERIOD).json()
    assert found["period"] == fleet["period"]
    days = found["days"]
    assert [day["jobs"] for day in days] == [2, 2, 1, 1]
    assert [day["day"] for day in days] == sorted({day["day"] for day in days})
    for name in ("jobs", "measured", "attempts", "failures", "lost_accelerator_ms"):
        assert sum(day[name] for day in days) == fleet[name]
    for part in fleet["components"]:
        of_days = sum(day["accelerator_ms"][part["component"]] for day in days)
        assert of_days == part["accelerator_ms"]
    assert days[0]["ett_pct_held"] == pytest.approx(fleet["ett_pct_held"])
    assert days[0]["held_accelerator_ms"] > days[0]["lost_accelerator_ms"] > 0
    hidden = client("anna").get("/api/v1/fleet/days", params={**PERIOD, "dag_id": SECRET_DAG})
    assert hidden.json()["days"] == []


def test_the_days_as_a_table(client: Client) -> None:
    params = {**PERIOD, "format": "csv"}
    lines = client("anna").get("/api/v1/fleet/days", params=params).text.splitlines()
    assert lines[0].startswith("day,jobs,measured,attempts,failures,ett_pct,")
    assert lines[0].endswith("shutdown_accelerator_ms,unattributed_accelerator_ms")
    assert len(lines) == 1 + 4
    assert lines[1].startswith("2026-09-21,1,1,2,1,")


def test_components_and_owners_are_the_configured_ones(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__COMPONENT_OWNERS", "wasted=storage")
    monkeypatch.setenv("AIRFLOW__ETT__PHASE_COMPONENTS", "my_warmup=trainer_init")
    listed = client("anna").get("/api/v1/components").json()["components"]
    found = {part["component"]: part for part in listed}
    assert found["wasted"]["owner"] == "storage"
    assert "my_warmup" in found["trainer_init"]["phases"]
    summary = client("anna").get("/api/v1/dags/ranker/summary", params=PERIOD).json()
    assert {p["component"]: p["owner"] for p in summary["components"]}["wasted"] == "storage"


@pytest.mark.parametrize(
    "query", ["days=0", "days=3661", "until=2026-13-01", "until=0001-01-01", "until=9999-12-31"]
)
def test_a_period_that_no_calendar_has(client: Client, query: str) -> None:
    answer = client("anna").get(f"/api/v1/fleet/summary?{query}")
    assert answer.status_code == 422
    assert f"query.{query.partition('=')[0]}" in answer.json()["detail"]


def test_health_names_the_revision(client: Client) -> None:
    found = client("nemo").get("/api/v1/health").json()
    assert (found["status"], found["database"]) == ("ok", "sqlite")
    assert found["revision"] == "0005"


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/health", "/api/v1/fleet/summary"])
def test_a_database_that_is_not_there(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    answer = client("anna").get(path)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    found = answer.json()
    assert "airflow-ett db check" in found["detail"]
    assert found["reference"] in caplog.text
    assert str(tmp_path) not in answer.text


def test_anything_else_is_told_by_its_reference(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("SELECT secret")

    monkeypatch.setattr("airflow_ett.store.queries.job_list", broken)
    answer = client("anna").get("/api/v1/jobs")
    assert answer.status_code == 500
    assert "SELECT" not in answer.text
    assert answer.json()["reference"] in caplog.text


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/v2/jobs", "/metrics/x"])
def test_an_address_that_is_none_answers_json(client: Client, path: str) -> None:
    answer = client("anna").get(path)
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    assert client("anna").post("/api/v1/jobs").status_code == 405
