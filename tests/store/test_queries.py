"""What the pages ask, and how the database answers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from airflow_ett.events import RunDir
from airflow_ett.store import Store, ingest_root, queries
from airflow_ett.store.queries import EventPlace, JobPlace, Wanted
from airflow_ett.store.scope import Dags

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
    assert len(queries.jobs(filled, deployment="default")) == 5
    assert queries.jobs(filled, dag_ids=["a"], deployment="staging") == []


def test_no_dag_means_no_row_and_quotes_are_text(filled: Store) -> None:
    assert queries.jobs(filled, dag_ids=[]) == []
    assert queries.jobs(filled, dag_ids=["a' OR '1'='1"]) == []
    assert queries.jobs(filled, run_id='x"; DROP TABLE ett_job; --') == []
    assert len(queries.jobs(filled)) == 5


def test_the_tasks_of_a_dag(filled: Store) -> None:
    assert queries.dag_task_ids(filled, Dags(["a"])) == ["train", "warm"]
    assert queries.dag_task_ids(filled, Dags(["a"], "default")) == ["train", "warm"]
    assert queries.dag_task_ids(filled, Dags(["a"], "staging")) == []
    assert queries.dag_task_ids(filled, Dags(["none"])) == []


def test_parts_of_results_are_what_the_whole_says(filled: Store) -> None:
    rows = queries.jobs(filled, dag_ids=["a"])
    names = ("ttr", "cause", "attempts", "held_components_ns", "ett_pct_held", "frozen", "nof")
    parts = queries.result_parts(filled, [row.job for row in rows], names)
    assert len(rows) == 4
    assert parts == {row.job: {name: row.result[name] for name in names} for row in rows}


def test_a_part_that_a_result_has_not_is_none(filled: Store) -> None:
    job = queries.jobs(filled, dag_ids=["b"])[0].job
    assert queries.result_parts(filled, [job], ["of tomorrow", "nof"]) == {
        job: {"of tomorrow": None, "nof": 1}
    }
    assert queries.result_parts(filled, ["none"], ["nof", "ttr"]) == {}
    assert queries.result_parts(filled, [], ["nof", "ttr"]) == {}


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


def test_pages_of_jobs_neither_repeat_nor_skip(
    filled: Store, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    for number in range(3):
        # Begun in the same instant as a job that is there.
        write_job(tmp_path, dag_id="b", run_id=f"tie-{number}", begin_ns=BEGIN + 2 * 86_400 * S)
    ingest_root(filled, tmp_path)
    whole = queries.job_list(filled, Wanted(), after=None, limit=100)
    assert len(whole) == 8
    assert [row["begin_ns"] for row in whole] == sorted(
        (r["begin_ns"] for r in whole), reverse=True
    )
    seen, after = [], None
    while page := queries.job_list(filled, Wanted(), after=after, limit=3):
        seen += page
        after = JobPlace(page[-1]["begin_ns"], page[-1]["job"])
    assert seen == whole


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Wanted(dag_ids=["a"]), 4),
        (Wanted(dag_ids=["a", "b", "none"]), 5),
        (Wanted(dag_ids=[]), 0),
        (Wanted(deployment="staging"), 0),
        (Wanted(run_id="run-1", task_id="train"), 2),
        (Wanted(states=["failed", "cancelled"]), 0),
        (Wanted(states=["succeeded"], since_ns=BEGIN + 1, until_ns=BEGIN + 3 * 86_400 * S), 2),
        (Wanted(run_id="' OR 1=1 --"), 0),
        (Wanted(dag_ids=['a"', "a'", "[a]", "{a}", "\\"]), 0),
    ],
)
def test_which_jobs_are_wanted(filled: Store, wanted: Wanted, count: int) -> None:
    assert len(queries.job_list(filled, wanted, after=None, limit=100)) == count


def test_a_job_with_its_rows(filled: Store) -> None:
    row = queries.jobs(filled, dag_ids=["b"])[0]
    for dags in (Dags(None), Dags(["b"], "default")):
        assert queries.dag_of(filled, row.job, dags) == "b"
    for dags in (Dags(None, "staging"), Dags(["a"])):
        assert queries.dag_of(filled, row.job, dags) is None
    found = queries.job_details(filled, row.job)
    assert found is not None
    counts = {n: len(found[n]) for n in ("submission", "attempt", "phase", "checkpoint", "publish")}
    assert counts == {"submission": 2, "attempt": 2, "phase": 9, "checkpoint": 2, "publish": 0}
    assert sum(phase["ns"] for phase in found["phase"]) == found["wall_ns"]
    assert (found["attempts"], found["recoveries"], found["ttr_ns"]) == (2, 1, 40 * S)
    assert queries.dag_of(filled, "none", Dags(None)) is None
    assert queries.job_details(filled, "none") is None


def test_pages_of_events_go_by_writer_and_number(filled: Store) -> None:
    job = queries.jobs(filled, dag_ids=["b"])[0].job
    whole = queries.events(filled, job, after=None, limit=500)
    assert {event.kind for event in whole} >= {"job_opened", "interval", "job_ended"}
    seen, after = [], None
    while page := queries.events(filled, job, after=after, limit=4):
        seen += page
        after = EventPlace(page[-1].writer, page[-1].seq)
    assert seen == whole
    assert queries.events(filled, "none", after=None, limit=5) == []
