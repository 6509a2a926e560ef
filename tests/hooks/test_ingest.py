"""Ingest on the way: a store that is away costs one warning and nothing else."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import airflow_ett.hooks.ingest as module
from airflow_ett import config
from airflow_ett.events import RunDir, read_log
from airflow_ett.hooks.ingest import BestEffortIngest, failures_per_hour, numbers_of
from airflow_ett.store import open_store, queries, upgrade


@pytest.fixture
def run_dir(tmp_path: Path, write_job: Callable[..., RunDir]) -> Path:
    return write_job(tmp_path / "runs").path


def use_store(monkeypatch: pytest.MonkeyPatch, url: str) -> str:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
    return url


def test_a_job_is_in_the_store_afterwards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    upgrade(url)
    BestEffortIngest(str(run_dir))()
    with contextlib.closing(open_store(url)) as store:
        (job,) = queries.jobs(store)
    assert job.result["state"] == "succeeded"


def test_the_past_of_a_dag_is_asked_for_and_can_be_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    assert failures_per_hour(config.load(), "ranker") is None
    upgrade(url)
    BestEffortIngest(str(run_dir))()
    monkeypatch.setattr("time.time_ns", lambda: 1_790_000_000 * 10**9)
    assert failures_per_hour(config.load(), "ranker") == pytest.approx(2 / 24, rel=0.01)
    assert failures_per_hour(config.load(), "another") == 1 / 24


def test_a_jobs_numbers_are_known_where_there_is_a_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    job = read_log(next(iter(RunDir(run_dir).logs()))).events[0].job
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    assert numbers_of(config.load(), job) == {}
    upgrade(url)
    BestEffortIngest(str(run_dir))()
    numbers = numbers_of(config.load(), job)
    assert (numbers["state"], numbers["nof"], numbers["wall_ns"]) == ("succeeded", 1, 90 * 10**9)
    assert numbers_of(config.load(), "another") == {}


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////nowhere/at/all/ett.db",
        "postgresql+psycopg://user:hunter2@127.0.0.1:1/ett?connect_timeout=2",
    ],
)
def test_a_store_that_is_away_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, run_dir: Path, url: str
) -> None:
    use_store(monkeypatch, url)
    ingest = BestEffortIngest(str(run_dir))
    with caplog.at_level(logging.WARNING):
        ingest(now=True)
        ingest(now=True)
    (record,) = [r for r in caplog.records if r.name == "airflow_ett.hooks.ingest"]
    assert "Training is not affected" in record.getMessage()
    assert "hunter2" not in caplog.text


def test_a_fault_of_ours_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    run_dir: Path,
) -> None:
    upgrade(use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db"))
    monkeypatch.setattr("airflow_ett.store.ingest_run_dir", lambda *_: {}["submission"])
    BestEffortIngest(str(run_dir))(now=True)
    assert "Training is not affected" in caplog.text


def test_what_a_store_missed_is_caught_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/late.db")
    ingest = BestEffortIngest(str(run_dir))
    ingest(now=True)
    upgrade(url)
    ingest(now=True)
    with contextlib.closing(open_store(url)) as store:
        assert len(queries.jobs(store)) == 1


def test_it_is_not_due_at_every_poll(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    ingest = BestEffortIngest(str(run_dir), every_s=3600)
    ingest()
    upgrade(url)
    ingest()
    with contextlib.closing(open_store(url)) as store:
        assert queries.jobs(store) == []


def test_the_next_poll_reads_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    upgrade(url)
    run_dir = write_job(tmp_path / "runs", ended=False).path
    ingest = BestEffortIngest(str(run_dir))
    ingest(now=True)
    monkeypatch.setattr("airflow_ett.store.batch.load_events", lambda *_: pytest.fail("read all"))
    write_job(tmp_path / "runs")
    ingest(now=True)
    with contextlib.closing(open_store(url)) as store:
        assert queries.jobs(store)[0].state == "succeeded"


def test_jobs_are_measured_with_the_configured_components(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    monkeypatch.setenv("AIRFLOW__ETT__PHASE_COMPONENTS", "replay=shutdown")
    upgrade(url)
    BestEffortIngest(str(run_dir))(now=True)
    with contextlib.closing(open_store(url)) as store:
        (job,) = queries.jobs(store)
        timings = queries.phases(store, job.job)
    assert {row.component for row in timings if row.phase == "replay"} == {"shutdown"}


def test_s13_hundreds_of_watchers_share_one_store_and_each_keeps_its_own_fold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    """A store for each would keep the garbage collector busy, which stops a triggerer's loop."""
    upgrade(use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db"))
    opened: list[object] = []
    real = open_store

    def opening(*args: Any, **kwargs: Any) -> Any:
        opened.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr("airflow_ett.store.open_store", opening)
    runs = [
        write_job(tmp_path / "runs", ended=False, run_id=f"run-{number}").path
        for number in range(20)
    ]
    ingests = [BestEffortIngest(str(run)) for run in runs]
    for ingest in ingests:
        ingest(now=True)
    monkeypatch.setattr("airflow_ett.store.batch.load_events", lambda *_: pytest.fail("read all"))
    for number in range(20):
        write_job(tmp_path / "runs", run_id=f"run-{number}")
        ingests[number](now=True)
    assert len(opened) == 1


def test_s13_a_store_in_use_is_left_for_the_next_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    upgrade(url)
    monkeypatch.setattr("airflow_ett.hooks.ingest._TURN_S", 60)
    ingest = BestEffortIngest(str(run_dir), every_s=3600)
    with ThreadPoolExecutor(1) as threads, module._turn:
        threads.submit(ingest).result(10)
    with contextlib.closing(open_store(url)) as store:
        assert queries.jobs(store) == []
    ingest()
    with contextlib.closing(open_store(url)) as store:
        assert len(queries.jobs(store)) == 1


def test_the_last_one_waits_for_a_store_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: Path
) -> None:
    url = use_store(monkeypatch, f"sqlite:///{tmp_path}/ett.db")
    upgrade(url)
    monkeypatch.setattr("airflow_ett.hooks.ingest._TURN_S", 60)
    ingest = BestEffortIngest(str(run_dir))
    with ThreadPoolExecutor(1) as threads:
        with module._turn:
            last = threads.submit(ingest, now=True)
            with pytest.raises(TimeoutError):
                last.result(0.1)
        last.result(10)
    with contextlib.closing(open_store(url)) as store:
        assert len(queries.jobs(store)) == 1
