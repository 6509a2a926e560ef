"""Results as older versions stored them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from airflow_ett.events import RunDir
from airflow_ett.store import Store, ingest_root, queries, tables

LATER = (
    *("excluded_ns", "time_to_first_advance_ns", "held_components_ns", "positions_ns"),
    *("windows", "current_phase", "progress_ns"),
)


@pytest.fixture
def older(store: Store, tmp_path: Path, write_job: Callable[..., RunDir]) -> dict[str, Any]:
    """A stored job whose result is as the first version told it; what this version told of it."""
    write_job(tmp_path / "runs")
    ingest_root(store, tmp_path / "runs")
    (row,) = queries.jobs(store)
    with store.read() as connection:
        result: dict[str, Any] = connection.execute(select(tables.job.c.result)).scalar_one()
    assert result["ttr"]
    for name in LATER:
        del result[name]
    for attempt in result["attempts"]:
        for name in ("log", "clock_skew", "slowest", "hosts", "waits", "levers"):
            del attempt[name]
    result["ttr"] = [
        {name: one[name] for name in ("ns", "recovered", "cause")} for one in result["ttr"]
    ]
    old = update(tables.job).values(result=result)
    store.write(lambda connection: connection.execute(old))
    return row.result


def test_what_came_later_is_unknown(store: Store, older: dict[str, Any]) -> None:
    (row,) = queries.jobs(store)
    assert row.result.keys() == older.keys()
    same = older.keys() - {*LATER, "attempts", "ttr"}
    assert {name: row.result[name] for name in same} == {name: older[name] for name in same}
    assert sum(row.result["held_components_ns"].values()) == row.held_ns
    assert row.result["positions_ns"].keys() == older["positions_ns"].keys()
    for name in ("attempts", "ttr"):
        pairs = zip(row.result[name], older[name], strict=True)
        assert all(one.keys() == other.keys() for one, other in pairs)


def test_every_question_gets_the_same_answer(store: Store, older: dict[str, Any]) -> None:
    (row,) = queries.jobs(store)
    details = queries.job_details(store, row.job)
    assert details is not None
    result = row.result
    for name in ("revision", "revised_ns"):
        del result[name]
    assert details["result"] == result
    names = [*LATER, "ttr", "attempts", "cause"]
    parts = queries.result_parts(store, [row.job], names)
    assert parts == {row.job: {name: row.result[name] for name in names}}
