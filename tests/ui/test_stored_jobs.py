"""From the logs of a job to the page: nothing is made up between."""

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import StoreMismatch
from airflow_ett.store import open_store, queries
from airflow_ett.ui.dag.view import PERIODS, dag_view


def test_the_tab_shows_what_the_logs_say(tmp_path: Path, job_writer: Any) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    begin = time.time_ns() - 3600 * 10**9
    job_writer(tmp_path / "runs", url).write("ranker", "r1", begin, failures=1)
    rows = queries.jobs(open_store(url), dag_ids=["ranker"])
    view = dag_view([row.result for row in rows], period=PERIODS[0], now_ns=begin, show_all=False)
    assert view is not None
    job = view.shown[0]
    assert sum(job.components_ns.values()) == job.wall_ns
    # 12 intervals, then 12 more of which 2 replay what the first attempt had reached.
    assert job.effective_ns == 220 * 10**9
    assert (job.nof, job.preempted, len(job.recoveries)) == (1, 1, 1)
    assert view.now.accelerated
    assert view.now.ett_pct == pytest.approx(100 * job.effective_ns / job.wall_ns)


def test_the_tab_reads_its_own_deployment(
    tmp_path: Path, job_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("airflow.api_fastapi")
    from airflow_ett.ui.dag import reads

    url = f"sqlite:///{tmp_path}/ett.db"
    job_writer(tmp_path / "runs", url).write("ranker", "r1", time.time_ns())
    for deployment, runs in (("default", ["r1"]), ("staging", [])):
        monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", deployment)
        rows = reads.jobs(open_store(url), "ranker", since_ns=None, limit=None)
        assert [row.run_id for row in rows] == runs


def test_a_store_without_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.api_fastapi")
    from airflow_ett.ui.depends import current_store

    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(StoreMismatch):
        current_store()
    assert not (tmp_path / "none.db").exists()
