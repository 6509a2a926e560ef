"""What the pages ask, and how the database answers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from airflow_ett.events import RunDir
from airflow_ett.store import Store, ingest_root, queries

S = 1_000_000_000
BEGIN = 1_790_000_000 * S


@pytest.fixture
def filled(store: Store, tmp_path: Path, write_job: Callable[..., RunDir]) -> Store:
    """Two runs of DAG ``a`` with two tasks each, one run of DAG ``b``."""
    for dag_id, run_id, task_id, day in [
        ("a", "run-1", "warm", 0),
        ("a", "run-1", "train", 1),
        ("a", "run-2", "train", 2),
        ("a", "run-2", "warm", 3),
        ("b", "run-1", "train", 4),
    ]:
        names = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}
        write_job(tmp_path, begin_ns=BEGIN + day * 86_400 * S, **names)
    ingest_root(store, tmp_path)
    return store


def _names(rows: list[queries.JobRow]) -> list[str]:
    return [f"{row.dag_id} {row.run_id} {row.task_id}" for row in rows]


def test_jobs_come_newest_first_and_filtered(filled: Store) -> None:
    assert _names(queries.jobs(filled)) == [
        "b run-1 train",
        "a run-2 warm",
        "a run-2 train",
        "a run-1 train",
        "a run-1 warm",
    ]
    assert _names(queries.jobs(filled, dag_ids={"a"}, limit=1)) == ["a run-2 warm"]
    assert _names(queries.jobs(filled, dag_ids=["b", "c"])) == ["b run-1 train"]
    assert _names(queries.jobs(filled, dag_ids=["a"], run_id="run-1", task_id="train")) == [
        "a run-1 train"
    ]
    assert len(queries.jobs(filled, since_ns=BEGIN + 3 * 86_400 * S)) == 2


def test_no_dag_means_no_row_and_quotes_are_text(filled: Store) -> None:
    assert queries.jobs(filled, dag_ids=[]) == []
    assert queries.jobs(filled, dag_ids=["a' OR '1'='1"]) == []
    assert queries.jobs(filled, run_id='x"; DROP TABLE ett_job; --') == []
    assert len(queries.jobs(filled)) == 5


def test_the_tasks_of_a_dag(filled: Store) -> None:
    assert queries.dag_task_ids(filled, "a") == ["train", "warm"]
    assert queries.dag_task_ids(filled, "none") == []


def test_a_dags_newest_jobs_are_found_by_index(filled: Store) -> None:
    if not filled.is_sqlite:
        pytest.skip("Postgres chooses a plan by the size of the table")
    query = "EXPLAIN QUERY PLAN SELECT job FROM ett_job WHERE dag_id = 'a' ORDER BY begin_ns DESC"
    with filled.read() as connection:
        plan = " ".join(str(row) for row in connection.execute(text(query)))
    assert "ix_ett_job_dag" in plan
    assert "TEMP B-TREE" not in plan


def test_how_often_a_dag_fails_is_one_a_day_until_history_says_otherwise(filled: Store) -> None:
    def rate(dag_id: str, since_ns: int = 0, deployment: str = "default") -> float:
        return queries.failures_per_hour(filled, deployment, dag_id, since_ns=since_ns)

    jobs = queries.jobs(filled, dag_ids=["a"])
    failures, hours = sum(job.nof for job in jobs), sum(job.wall_ns for job in jobs) / S / 3600
    assert (failures, hours) == (4, 4 * 90 / 3600)
    assert rate("a") == pytest.approx((4 + 1) / (hours + 24))
    assert rate("a", BEGIN + 3 * 86_400 * S) == pytest.approx((1 + 1) / (90 / 3600 + 24))
    assert rate("never seen") == rate("a", deployment="staging") == 1 / 24
