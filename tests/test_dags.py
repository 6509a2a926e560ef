"""The DAG that keeps the fleet's numbers up to date."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from airflow_ett import config
from airflow_ett.dags import rollup_dag
from airflow_ett.events import RunDir
from airflow_ett.metric import configured
from airflow_ett.store import ingest_root, open_store, queries, upgrade


def test_it_measures_with_the_configured_components(
    tmp_path: Path, write_job: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/ett.db")
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("AIRFLOW__ETT__PHASE_COMPONENTS", "replay=shutdown")
    write_job(tmp_path / "runs")
    settings = config.load()
    upgrade(settings.sql_alchemy_conn)
    store = open_store(settings.sql_alchemy_conn, components=configured(settings))
    with closing(store):
        ingest_root(store, settings.run_root)
        (before,) = queries.jobs(store)
        assert before.result["components_ns"]["shutdown"] > 0
        assert rollup_dag().get_task("ingest").python_callable() == 0
        assert queries.jobs(store) == [before]


def test_the_reaper_is_apart_from_the_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path / "runs"))
    task = rollup_dag().get_task("reap")
    assert (task.upstream_task_ids, task.downstream_task_ids) == (set(), set())
    assert task.python_callable() == []
    monkeypatch.setattr("airflow_ett.hooks.reaper.reap", lambda settings: ["an orphan"])
    assert task.python_callable() == ["an orphan"]
    assert "an orphan" in caplog.text


def test_it_removes_what_is_older_than_the_options_allow(
    tmp_path: Path, write_job: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/ett.db")
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path / "runs"))
    write_job(tmp_path / "runs")
    dag = rollup_dag()
    events = dag.get_task("ingest").python_callable()
    dag.get_task("roll_up").python_callable()
    prune = dag.get_task("prune")
    assert prune.upstream_task_ids == {"roll_up"}
    assert prune.python_callable() == {}
    monkeypatch.setenv("AIRFLOW__ETT__KEEP_EVENTS", "1d")
    with closing(open_store(config.load().sql_alchemy_conn)) as store:
        kept = queries.jobs(store)
        assert events in prune.python_callable().values()
        assert queries.jobs(store) == kept
