"""Graphs that were compiled anew for a change that needs none of its own."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.metric.plans.advice import Advice, advise
from airflow_ett.metric.plans.advice.gains import saving, together
from airflow_ett.metric.plans.advice.jobs import Jobs
from airflow_ett.metric.plans.advice.levers import LEVERS
from tests.metric.plans.made_jobs import HOUR, SECOND, Result, job

SIZE = "0/0: tensor 'x' size mismatch at index 0. expected 512, actual 384"
OTHER_SIZE = "0/1: tensor 'y' size mismatch at index 0. expected 512, actual 384"
FIRST = {"id": "0/0", "s": 1000, "misses": 2}
AGAIN = {"id": "0/1", "s": 600, "misses": 2, "reason": SIZE}
TRAINS = {"train": 5 * HOUR}


def attempt(*rows: dict[str, Any]) -> dict[str, Any]:
    seconds = sum(row["s"] for row in rows if row.get("lane", "main") == "main")
    return {"compile": seconds, "compiles": [*rows]} | TRAINS


def the(*results: Result) -> Advice | None:
    return next((item for item in advise(results).items if item.key == "fewer_graphs"), None)


def test_what_is_compiled_anew_is_saved_in_every_attempt() -> None:
    little = {"id": "0/2", "s": 100, "misses": 2, "reason": OTHER_SIZE}
    jobs = [
        job(attempt(FIRST, AGAIN), attempt(FIRST, AGAIN, little), run="r1"),
        job(attempt(FIRST), run="r2", begin_s=1),
    ]
    found = the(*jobs)
    assert found is not None
    assert found.title == "Compile fewer graphs"
    assert found.saved_ns == 1300 * SECOND
    assert found.component == "pt2_compile"
    assert found.runs == ("r1",)
    assert found.evidence.replace("\u00a0", " ") == (
        "2 attempts in 1 of 2 runs compiled graphs anew, 10 m 50 s each at the median, most for "
        "this change: size of dimension 0 of x. The lines to add: airflow-ett recompiles."
    )


@pytest.mark.parametrize(
    "row",
    [
        {"reason": None},
        {"reason": "0/0: GLOBAL_STATE changed: grad_mode "},
        {"reason": "0/0: who knows"},
        {"lane": "warm"},
    ],
    ids=["first time", "a graph of its own", "not understood", "beside the training"],
)
def test_what_cannot_be_spared(row: dict[str, Any]) -> None:
    assert the(job(attempt(FIRST, AGAIN | row))) is None


def test_compilations_of_several_nodes_count_once() -> None:
    found = the(job(attempt(FIRST, AGAIN) | {"compiles": 2 * [FIRST, AGAIN]}))
    assert found is not None
    assert found.saved_ns == 600 * SECOND


def test_caches_need_not_tell() -> None:
    found = the(job(attempt(FIRST, AGAIN | {"hits": None, "misses": None})))
    assert found is not None
    assert found.saved_ns == 600 * SECOND


def test_what_a_kept_cache_would_spare_too_counts_once() -> None:
    """Of the second attempt the graph that is not compiled anew is left to the cache."""
    jobs = Jobs([job(attempt(FIRST, AGAIN), attempt(FIRST, AGAIN))])
    proposals = [LEVERS[key](jobs) for key in ("compile_cache", "fewer_graphs")]
    cache, graphs = [one for one in proposals if one]
    assert saving(jobs, cache).by_phase.total() == 1400 * SECOND
    assert saving(jobs, graphs).by_phase.total() == 1200 * SECOND
    assert together(jobs, [cache, graphs]) == 8 * (2 * 600 + 875) * SECOND
