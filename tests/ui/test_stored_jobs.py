"""From the logs of a job to the page: nothing is made up between."""

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from airflow_ett.errors import StoreMismatch
from airflow_ett.metric.plans.advice import NEEDED
from airflow_ett.store import open_store, queries
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.dag import reads
from airflow_ett.ui.dag.filters import Filters
from airflow_ett.ui.dag.period import PERIODS
from airflow_ett.ui.dag.view import dag_view


def _read(url: str, dag_id: str, task: str | None = None) -> reads.Jobs:
    span = PERIODS[0].span(time.time_ns(), Clock())
    store = open_store(url)
    try:
        return reads.jobs(store, dag_id, task=task, period=PERIODS[0], span=span)
    finally:
        store.close()


def test_the_tab_shows_what_the_logs_say(tmp_path: Path, job_writer: Any) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    begin = time.time_ns() - 3600 * 10**9
    job_writer(tmp_path / "runs", url).write("ranker", "r1", begin, failures=1)
    view = dag_view("ranker", _read(url, "ranker").within, (), Filters(), clock=Clock())
    job = view.rows[0].job
    assert sum(job.components_ns.values()) == job.wall_ns
    assert sum(job.held_components_ns.values()) == job.held_ns
    # 12 intervals, then 12 more of which 2 replay what the first attempt had reached.
    assert job.effective_ns == 220 * 10**9
    assert (job.attempts, job.nof, job.preempted, len(job.recoveries)) == (2, 1, 1, 1)
    assert view.now.accelerated
    assert view.now.ett_pct == pytest.approx(100 * job.effective_ns / job.wall_ns)


def test_a_job_is_read_as_its_report_tells_it(tmp_path: Path, job_writer: Any) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    job_writer(tmp_path / "runs", url).write("ranker", "r1", time.time_ns(), failures=1)
    (row,) = _read(url, "ranker").within
    (stored,) = queries.jobs(open_store(url))
    assert row.keys() >= NEEDED
    told = stored.result
    same = row.keys() & told.keys()
    assert {name: row[name] for name in same} == {name: told[name] for name in same}


def test_the_tab_reads_its_own_deployment(
    tmp_path: Path, job_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    job_writer(tmp_path / "runs", url).write("ranker", "r1", time.time_ns())
    for deployment, runs, tasks in (("default", ["r1"], ["train"]), ("staging", [], [])):
        monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", deployment)
        assert [row["run_id"] for row in _read(url, "ranker").within] == runs
        assert reads.tasks(open_store(url), "ranker") == tasks


def test_a_store_without_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_ett.ui.depends import current_store

    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(StoreMismatch):
        current_store()
    assert not (tmp_path / "none.db").exists()
