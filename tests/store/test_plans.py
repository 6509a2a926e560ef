"""The indexes that docs/store.md names are those that the databases use."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, event

from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, open_store, queries, upgrade
from airflow_ett.store.periods import Period, by_dag, running, total
from airflow_ett.store.queries import EventPlace, JobPlace, Wanted
from airflow_ett.store.scope import Dags
from airflow_ett.store.unfinished import unfinished
from bench.fleet import DEPLOYMENT, END, SECOND, fill

JOBS = 1_000
DAY = 86_400 * SECOND
MONTH = Period("2026-05-01", "2026-05-31", ZoneInfo("UTC"))
SOME = [f"dag-{number}" for number in range(0, 300, 6)]
ONE, READABLE, EVERY = (Dags(ids, DEPLOYMENT) for ids in (["dag-0"], SOME, None))
JOB = "0" * 20
PLACE = JobPlace(END - 300 * DAY, JOB)

Question = Callable[[Store], Any]

QUESTIONS: dict[str, Question] = {
    "the newest jobs of a DAG": lambda s: queries.jobs(
        s, dag_ids=["dag-0"], deployment=DEPLOYMENT, limit=50
    ),
    "the jobs of a run": lambda s: queries.jobs(s, dag_ids=["dag-0"], run_id="r-7", limit=50),
    "a page of the jobs of many DAGs": lambda s: queries.job_list(
        s, Wanted(SOME, DEPLOYMENT), after=PLACE, limit=50
    ),
    "those in one state": lambda s: queries.job_list(
        s, Wanted(SOME, DEPLOYMENT, states=["running"]), after=PLACE, limit=50
    ),
    "one job with its attempts, phases and checkpoints": lambda s: queries.job_details(
        s, queries.job_list(s, Wanted(), after=None, limit=1)[0]["job"]
    ),
    "a page of a job's events": lambda s: queries.events(
        s, JOB, after=EventPlace("w", 1), limit=50
    ),
    "the sums of a DAG": lambda s: total(s, MONTH, ONE),
    "the sums of the fleet": lambda s: total(s, MONTH, EVERY),
    "the sums of each DAG": lambda s: by_dag(s, MONTH, READABLE),
    "what runs now": lambda s: running(s, READABLE),
    "how often a DAG fails": lambda s: queries.failures_per_hour(
        s, DEPLOYMENT, "dag-0", since_ns=END - 30 * DAY
    ),
    "the reaper's jobs": lambda s: unfinished(s, DEPLOYMENT),
    "the rollup of the days that changed": lambda s: roll_up(s, timezone="UTC"),
}


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A store with a small fleet."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/ett.db"
    else:
        server = request.getfixturevalue("postgres")
        server.psql("CREATE DATABASE plans")
        # Tables as small as these are read whole, otherwise.
        for way in ("seqscan", "bitmapscan"):
            server.psql(f"ALTER DATABASE plans SET enable_{way} = off")
        url = str(server.get_uri(database="plans"))
    upgrade(url)
    store = open_store(url)
    fill(store, JOBS)
    yield store
    store.close()


def plan_of(store: Store, ask: Question) -> str:
    """Return the plans of all statements that a question takes."""
    asked: list[tuple[str, Any]] = []

    @event.listens_for(Engine, "before_cursor_execute")
    def noted(_: Any, __: Any, statement: str, values: Any, ___: Any, many: bool) -> None:
        if re.match("SELECT|UPDATE|DELETE", statement):
            asked.append((statement, values[0] if many else values))

    try:
        ask(store)
    finally:
        event.remove(Engine, "before_cursor_execute", noted)
    explain = "EXPLAIN QUERY PLAN " if store.is_sqlite else "EXPLAIN (COSTS OFF) "
    lines: list[str] = []
    with store.read() as connection:
        for statement, values in asked:
            lines += (row[-1] for row in connection.exec_driver_sql(explain + statement, values))
    return "\n".join(lines)


def documented(repo: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Return the questions of docs/store.md with the indexes that Postgres and SQLite take."""
    page = (repo / "docs" / "store.md").read_text()
    section = page.partition("| Question |")[2]
    rows = re.findall(r"^\| ([^|`]+) \| (`[^|]+`) \| (`[^|]+`) \|$", section, re.MULTILINE)
    return {
        question: (re.findall("`([^`]+)`", postgres), re.findall("`([^`]+)`", sqlite))
        for question, postgres, sqlite in rows
    }


def test_every_question_is_documented(repo: Path) -> None:
    assert list(documented(repo)) == list(QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_takes_its_indexes(filled: Store, repo: Path, question: str) -> None:
    plan = plan_of(filled, QUESTIONS[question])
    for index in documented(repo)[question][filled.is_sqlite]:
        assert _uses(filled, plan, index), f"{index} is not in\n{plan}"


def _uses(store: Store, plan: str, index: str) -> bool:
    if store.is_sqlite and index.endswith("_pkey"):
        return f"sqlite_autoindex_{index.removesuffix('_pkey')}_1" in plan
    return index in plan
