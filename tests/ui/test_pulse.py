"""The small answer that live pages ask for: another one as soon as there is something to show."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from fastapi.testclient import TestClient
from sqlalchemy import event, update

from airflow_ett.store import Store, open_store, tables, upgrade
from airflow_ett.ui.app import create_app
from airflow_ett.ui.depends import current_store, get_user
from airflow_ett.ui.pulse import WAITING_S, Pulse, pulse_of

Make = Callable[..., dict[str, Any]]
SECOND = 10**9
NOW = 1_796_000_010 * SECOND
BEGIN = 1_796_000_000 * SECOND


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def keep(store: Store, report: Make, keep_report: Callable[..., None]) -> Callable[..., None]:
    """Store a job: ``keep(job="a", frozen=False)``."""
    return lambda **changes: keep_report(store, report(**changes))


def change(store: Store, job: str, **values: Any) -> None:
    query = update(tables.job).where(tables.job.c.job == job).values(**values)
    store.write(lambda connection: connection.execute(query))


def version(store: Store, now_ns: int = NOW, **view: Any) -> str | None:
    found = pulse_of(store, "ranker", now_ns=now_ns, **view)
    return found and found.version


def test_a_dag_is_asked_about_more_often_while_a_job_of_it_lives(
    store: Store, keep: Callable[..., None]
) -> None:
    def every() -> int:
        found = pulse_of(store, "ranker", now_ns=NOW)
        assert found is not None
        return found.every_s

    assert every() == WAITING_S
    keep(job="a")
    assert every() == WAITING_S
    keep(job="b", frozen=False)
    assert every() == 5
    change(store, "b", frozen=True)
    assert every() == WAITING_S


def test_a_dag_without_a_live_job_waits_for_its_next(
    store: Store, keep: Callable[..., None]
) -> None:
    seen = [version(store)]
    keep(job="a")
    seen.append(version(store))
    assert version(store, NOW + 3_600 * SECOND) == seen[-1]
    keep(job="b", begin_ns=BEGIN + 1)
    seen.append(version(store))
    keep(job="c", begin_ns=BEGIN + 2, frozen=False)
    seen.append(version(store))
    assert len(set(seen)) == 4


@pytest.mark.parametrize(
    "view", [{}, {"run_id": "r"}, {"run_id": "r", "task_id": "train"}], ids=["dag", "run", "task"]
)
def test_every_change_is_another_version(
    store: Store, keep: Callable[..., None], view: dict[str, str]
) -> None:
    keep(job="a", run_id="r", frozen=False)
    seen = [version(store, **view)]
    change(store, "a", updated_ns=BEGIN + 1)
    seen.append(version(store, **view))
    keep(job="b", run_id="r", frozen=False, begin_ns=BEGIN + 1)
    seen.append(version(store, **view))
    keep(job="c", run_id="r", frozen=True, begin_ns=BEGIN + 2)
    seen.append(version(store, **view))
    change(store, "b", frozen=True)
    seen.append(version(store, **view))
    assert None not in seen
    assert len(set(seen)) == 5
    assert version(store, **view) == seen[-1]


def test_a_live_page_is_made_anew_each_half_minute(store: Store, keep: Callable[..., None]) -> None:
    keep(frozen=False)
    versions = {version(store, NOW + seconds * SECOND) for seconds in range(60)}
    assert len(versions) in (2, 3)


def test_a_run_waits_for_its_first_job(store: Store, keep: Callable[..., None]) -> None:
    waiting = version(store, run_id="r")
    assert waiting == version(store, NOW + 3_600 * SECOND, run_id="r")
    keep(run_id="r", frozen=False)
    assert version(store, run_id="r") not in (waiting, None)


@pytest.mark.parametrize(
    ("other", "view"),
    [
        ({"dag_id": "other"}, {}),
        ({"deployment": "staging"}, {}),
        ({"run_id": "other"}, {"run_id": "r"}),
        ({"task_id": "other"}, {"run_id": "r", "task_id": "train"}),
        ({"task_id": "other"}, {"task_id": "train"}),
    ],
    ids=["dag", "deployment", "run", "task of the run", "task of the dag"],
)
def test_others_jobs_give_no_life(
    store: Store, keep: Callable[..., None], other: dict[str, str], view: dict[str, str]
) -> None:
    keep(job="ended", run_id="r")
    before = version(store, **view)
    keep(job="other", frozen=False, **{"run_id": "r", **other})
    assert version(store, **view) == before


@pytest.mark.parametrize(
    ("view", "href"),
    [
        ({}, "../pulse/a%2Fb%20%22c"),
        ({"run_id": "r&1 +ä"}, "../pulse/a%2Fb%20%22c?run_id=r%261%20%2B%C3%A4"),
        ({"run_id": "r", "task_id": "t"}, "../pulse/a%2Fb%20%22c?run_id=r&task_id=t"),
    ],
    ids=["dag", "run", "task"],
)
def test_the_address_names_the_view(
    store: Store, keep: Callable[..., None], view: dict[str, str], href: str
) -> None:
    keep(dag_id='a/b "c', frozen=False, **{"run_id": "r", **view, "task_id": "t"})
    found = pulse_of(store, 'a/b "c', **view, now_ns=NOW)
    assert isinstance(found, Pulse)
    assert (found.href, found.at_ns) == (href, NOW)


def test_the_route_answers_what_the_page_bears(
    store: Store, keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(run_id="r 1", frozen=False)
    monkeypatch.setattr("time.time_ns", lambda: NOW)
    monkeypatch.setattr("airflow_ett.api.access.may_read", lambda *asked: True)
    app = create_app()
    app.dependency_overrides[current_store] = lambda: store
    app.dependency_overrides[get_user] = lambda: SimpleNamespace(get_name=lambda: "m.okafor")
    client = TestClient(app)
    found = pulse_of(store, "ranker", run_id="r 1", now_ns=NOW)
    assert found is not None
    asked = found.href.removeprefix("..")
    answer = client.get(asked)
    expected = {"version": found.version, "live": True, "at": "00:53:30 UTC"}
    assert answer.json() == expected
    assert answer.headers["cache-control"] == "no-store"
    assert len(answer.content) < 200
    zone = client.get(asked, headers={"cookie": "ett_zone=Europe%2FBerlin"}).json()
    assert zone == expected | {"at": "01:53:30 CET"}
    change(store, "0" * 20, frozen=True)
    assert client.get(asked).json() == {"version": "", "live": False, "at": "00:53:30 UTC"}
    assert client.get("/pulse/ranker?run_id=%00").status_code == 422


def test_one_statement_finds_its_rows_by_an_index(store: Store, keep: Callable[..., None]) -> None:
    keep(frozen=False)
    statements: list[tuple[str, Any]] = []
    engine = store._engine
    event.listen(
        engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, given, *rest: statements.append((statement, given)),
    )
    plans = []
    for view in ({}, {"run_id": "r"}):
        statements.clear()
        version(store, **view)
        ((statement, given),) = [one for one in statements if one[0].startswith("SELECT")]
        with engine.connect() as connection:
            rows = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, given)
            plans.append(" ".join(row[-1] for row in rows))
    assert "ix_ett_job_live" in plans[0]
    assert "ix_ett_job_dag" in plans[0]
    assert "TEMP B-TREE" not in plans[0]
    assert "ix_ett_job_run" in plans[1]


def test_nothing_of_another_deployment_shows(store: Store, keep: Callable[..., None]) -> None:
    keep(job="a", frozen=False)
    before = version(store)
    keep(job="b", deployment="staging", begin_ns=BEGIN + SECOND)
    assert version(store) == before
