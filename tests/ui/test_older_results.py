"""Jobs as older versions stored them: every page shows them."""

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from sqlalchemy import select, update

from airflow_ett.store import tables
from tests.ui.made_site import text_of

LATER = (
    *("excluded_ns", "time_to_first_advance_ns", "held_components_ns", "positions_ns"),
    *("windows", "current_phase", "progress_ns"),
)


@pytest.fixture
def job(site: Any, tmp_path: Path, job_writer: Any) -> str:
    """A job of two attempts with the keys that the first version knew."""
    write = job_writer(tmp_path / "runs", f"sqlite:///{tmp_path}/ett.db").write
    write("ranker", "r1", time.time_ns() - 3600 * 10**9, failures=1)
    with site.store.read() as connection:
        job, result = connection.execute(select(tables.job.c.job, tables.job.c.result)).one()
    for name in LATER:
        del result[name]
    for attempt in result["attempts"]:
        for name in ("log", "clock_skew", "slowest", "hosts", "waits", "levers"):
            del attempt[name]
    for recovery in result["ttr"]:
        for name in ("layer", "attempt", "utt_ns"):
            del recovery[name]
    old = update(tables.job).values(result=result)
    site.store.write(lambda connection: connection.execute(old))
    return str(job)


@pytest.mark.parametrize("clock", ["", "held"])
def test_the_dag_tab(site: Any, job: str, clock: str) -> None:
    answer = site.client().get("/dag/ranker", params={"clock": clock})
    assert answer.status_code == 200
    assert "r1" in text_of(answer.text)


def test_the_run_tab(site: Any, job: str) -> None:
    answer = site.client().get("/run/ranker", params={"run_id": "r1"})
    assert answer.status_code == 200
    assert "The wall clock as one sum" in text_of(answer.text)
    assert "Recovery 1" not in answer.text


def test_the_timeline(site: Any, job: str) -> None:
    answer = site.client().get("/timeline/ranker", params={"job": job})
    assert answer.status_code == 200
    assert answer.json()["data"]
