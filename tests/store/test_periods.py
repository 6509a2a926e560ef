"""Sums over periods: the same from the rollup, from the jobs, and from both together."""

import itertools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import event, func, select, update

from airflow_ett.events import LogWriter, RunDir
from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, ingest_root, periods, queries, tables
from airflow_ett.store.periods import Period
from airflow_ett.store.scope import Dags
from airflow_ett.store.sums import COLUMNS, SPENT, WEIGHTED, Sums

S = 1_000_000_000
UTC_ZONE = ZoneInfo("UTC")
NOVEMBER = Period("2026-11-01", "2026-11-30", UTC_ZONE)
EVERY = Dags(None)


def _at(day: int, hour: int) -> int:
    return int(datetime(2026, 11, day, hour, tzinfo=UTC).timestamp()) * S


@pytest.fixture
def runs(store: Store, tmp_path: Path, write_job: Callable[..., RunDir]) -> list[RunDir]:
    """Jobs of three DAGs in two deployments on four days, one of which has not ended."""
    written = [
        write_job(tmp_path, dag_id=dag_id, run_id=f"{day}", begin_ns=_at(day, 3), accelerators=day)
        for dag_id, day in itertools.product("ab", (1, 2, 3))
    ]
    written.append(write_job(tmp_path, dag_id="a", run_id="live", begin_ns=_at(4, 1), ended=False))
    written.append(write_job(tmp_path, dag_id="c", deployment="staging", begin_ns=_at(30, 23)))
    ingest_root(store, tmp_path)
    return written


def _direct(store: Store, period: Period = NOVEMBER, *dag_ids: str) -> Sums:
    """Add up the jobs one by one, as slowly as it is plain."""
    job = tables.job.c
    first, last = period.ends_ns
    query = select(*(job[name] for name in COLUMNS)).where(job.frozen)
    query = query.where(job.end_ns >= first, job.end_ns <= last)
    if dag_ids:
        query = query.where(job.dag_id.in_(dag_ids))
    sums = Sums()
    with store.read() as connection:
        for row in connection.execute(query):
            sums.add_job(*row)
    return sums


def _added(parts: Iterable[Sums]) -> Sums:
    whole = Sums()
    for part in parts:
        whole.add(part)
    return whole


def _reads_jobs(store: Store, ask: Callable[[], object]) -> bool:
    """Say whether a question reads the measures of single jobs."""
    statements: list[str] = []

    def noted(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    event.listen(store._engine, "before_cursor_execute", noted)
    try:
        ask()
    finally:
        event.remove(store._engine, "before_cursor_execute", noted)
    return any("nof_by_cause" in statement for statement in statements)


@pytest.mark.usefixtures("runs")
def test_the_sums_are_the_same_before_and_after_the_rollup(store: Store) -> None:
    expected = _direct(store)
    assert expected["jobs"] == 7
    assert sum(expected[name] for name in SPENT.values()) == expected["wall_ns"]
    assert expected[WEIGHTED["effective"]] == (2 * (1 + 2 + 3) + 2) * 40_000
    assert periods.total(store, NOVEMBER, EVERY) == expected
    before = periods.by_dag(store, NOVEMBER, EVERY)
    roll_up(store, timezone="UTC")
    assert periods.total(store, NOVEMBER, EVERY) == expected
    assert periods.by_dag(store, NOVEMBER, EVERY) == before
    assert set(before) == {("default", "a"), ("default", "b"), ("staging", "c")}
    assert not _reads_jobs(store, lambda: periods.total(store, NOVEMBER, EVERY))


@pytest.mark.usefixtures("runs")
def test_days_and_the_days_of_dags_add_up_to_the_period(store: Store) -> None:
    expected = _direct(store)
    ended = {"2026-11-01", "2026-11-02", "2026-11-03", "2026-11-30"}
    for _ in range(2):
        days = periods.by_day(store, NOVEMBER, EVERY)
        assert set(days) == ended
        assert _added(days.values()) == expected
        for day, sums in days.items():
            assert sums == _direct(store, Period(day, day, UTC_ZONE))
        dags = periods.by_dag_and_day(store, NOVEMBER, EVERY)
        assert set(dags["default", "a"]) == ended - {"2026-11-30"}
        assert set(dags["staging", "c"]) == {"2026-11-30"}
        whole = periods.by_dag(store, NOVEMBER, EVERY)
        assert {dag: _added(of.values()) for dag, of in dags.items()} == whole
        only_a = periods.by_dag_and_day(store, NOVEMBER, Dags(["a"]))
        assert only_a == {("default", "a"): dags["default", "a"]}
        roll_up(store, timezone="UTC")
    assert not _reads_jobs(store, lambda: periods.by_dag_and_day(store, NOVEMBER, EVERY))


def test_days_are_those_of_the_zone_with_and_without_the_rollup(
    store: Store, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    write_job(tmp_path, run_id="evening", begin_ns=_at(1, 16))
    write_job(tmp_path, run_id="noon", begin_ns=_at(1, 12))
    ingest_root(store, tmp_path)
    for _ in range(2):
        days = periods.by_day(store, Period("2026-11-01", "2026-11-03", tokyo), EVERY)
        assert {day: sums["jobs"] for day, sums in days.items()} == {
            "2026-11-01": 1,
            "2026-11-02": 1,
        }
        roll_up(store, timezone="Asia/Tokyo")


def test_a_changed_day_counts_once_by_day(
    store: Store, runs: list[RunDir], tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    roll_up(store, timezone="UTC")
    write_job(tmp_path, dag_id="a", run_id="new", begin_ns=_at(2, 9))
    ingest_root(store, tmp_path)
    days = periods.by_day(store, NOVEMBER, EVERY)
    assert {day: sums["jobs"] for day, sums in days.items()} == {
        "2026-11-01": 2,
        "2026-11-02": 3,
        "2026-11-03": 2,
        "2026-11-30": 1,
    }
    dags = periods.by_dag_and_day(store, NOVEMBER, Dags(["a"]))
    assert dags["default", "a"]["2026-11-02"]["jobs"] == 2


@pytest.mark.usefixtures("runs")
def test_the_last_end_is_one_of_the_dags(store: Store) -> None:
    job = tables.job.c
    last = select(job.dag_id, func.max(job.end_ns)).where(job.frozen).group_by(job.dag_id)
    with store.read() as connection:
        ends = {row[0]: row[1] for row in connection.execute(last)}
    assert periods.last_end(store, EVERY) == ends["c"]
    assert periods.last_end(store, Dags(["a", "b"])) == max(ends["a"], ends["b"])
    assert periods.last_end(store, Dags(["none"])) is None


@pytest.mark.usefixtures("runs")
def test_whether_there_is_a_rollup(store: Store) -> None:
    assert not periods.has_rollup(store)
    roll_up(store, timezone="UTC")
    assert periods.has_rollup(store)


@pytest.mark.usefixtures("runs")
def test_only_the_dags_that_are_asked_for_count(store: Store) -> None:
    for _ in range(2):
        for ids in (["a"], ["a", "b"], ["a", "c", "none"]):
            assert periods.total(store, NOVEMBER, Dags(ids)) == _direct(store, NOVEMBER, *ids)
        assert periods.total(store, NOVEMBER, Dags([])) == Sums()
        assert periods.total(store, NOVEMBER, Dags(None, "staging"))["jobs"] == 1
        assert periods.total(store, NOVEMBER, Dags(["a"], "staging")) == Sums()
        roll_up(store, timezone="UTC")


def test_what_the_rollup_does_not_know_yet_counts(
    store: Store, runs: list[RunDir], tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    roll_up(store, timezone="UTC")
    write_job(tmp_path, dag_id="a", run_id="new", begin_ns=_at(2, 9))
    late = LogWriter(runs[0].launcher / "late.jsonl", job=_job(store, "a", "1"), writer="late")
    state = {"submission": 2, "raw": "COMPLETED", "state": "SUCCEEDED", "ended_ns": _at(5, 3)}
    late.append("scheduler_state", state, time_ns=_at(5, 3))
    late.close()
    ingest_root(store, tmp_path)
    expected = _direct(store)
    assert (expected["jobs"], expected["wall_ns"] > 86_400 * S) == (8, True)
    assert periods.total(store, NOVEMBER, EVERY) == expected
    for day in range(1, 6):
        period = Period(f"2026-11-0{day}", f"2026-11-0{day}", UTC_ZONE)
        assert periods.total(store, period, EVERY) == _direct(store, period)
    assert not _reads_jobs(store, lambda: periods.total(store, NOVEMBER, Dags(["b"])))
    roll_up(store, timezone="UTC")
    assert periods.total(store, NOVEMBER, EVERY) == expected


@pytest.mark.usefixtures("runs")
def test_a_rollup_of_another_zone_is_no_answer(store: Store) -> None:
    roll_up(store, timezone="UTC")
    period = Period("2026-12-01", "2026-12-01", ZoneInfo("Asia/Tokyo"))
    assert periods.total(store, period, EVERY)["jobs"] == 1
    roll_up(store, timezone="Asia/Tokyo")
    assert periods.total(store, period, EVERY)["jobs"] == 1
    assert not _reads_jobs(store, lambda: periods.total(store, period, EVERY))


@pytest.mark.usefixtures("runs")
def test_too_many_new_jobs_are_counted_without_the_rollup(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periods, "_MOST_CHANGED", 3)
    roll_up(store, timezone="UTC")
    store.write(lambda connection: connection.execute(update(tables.job).values(rolled_up=False)))
    assert periods.total(store, NOVEMBER, EVERY) == _direct(store)


@pytest.mark.usefixtures("runs")
def test_what_runs_is_counted_apart(store: Store) -> None:
    assert periods.running(store, EVERY) == {("default", "a"): 1}
    assert periods.running(store, Dags(["b"])) == {}
    assert periods.known_dags(store) == ["a", "b", "c"]


def test_nothing_is_known_of_an_empty_store(store: Store) -> None:
    assert periods.known_dags(store) == []
    assert periods.total(store, NOVEMBER, EVERY) == Sums()
    assert roll_up(store, timezone="UTC") == 0
    assert periods.total(store, NOVEMBER, Dags(["a"])) == Sums()


@pytest.mark.usefixtures("runs")
def test_thousands_of_dags_are_one_parameter(store: Store) -> None:
    """More names than a statement of SQLite or Postgres may have parameters."""
    ids = [f"dag-{number}" for number in range(70_000)] + ["a"]
    roll_up(store, timezone="UTC")
    assert periods.total(store, NOVEMBER, Dags(ids)) == _direct(store, NOVEMBER, "a")
    wanted = queries.Wanted(dag_ids=ids)
    assert len(queries.job_list(store, wanted, after=None, limit=100)) == 4


@pytest.mark.usefixtures("runs")
def test_sums_beyond_64_bits_are_exact(store: Store) -> None:
    roll_up(store, timezone="UTC")
    most = 2**63 - 1
    store.write(
        lambda connection: connection.execute(
            update(tables.rollup).values(wall_ns=most, wasted_weighted_ms=most)
        )
    )
    found = periods.total(store, NOVEMBER, EVERY)
    assert found["wall_ns"] == found[WEIGHTED["wasted"]] == 7 * most


def _job(store: Store, dag_id: str, run_id: str) -> str:
    return queries.jobs(store, dag_ids=[dag_id], run_id=run_id)[0].job
