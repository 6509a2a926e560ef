"""A lever that is there already is not proposed anew: why it did not help is told."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.metric.plans.advice import Advice, advise
from airflow_ett.metric.plans.advice.gains import saving, together
from airflow_ett.metric.plans.advice.jobs import Jobs
from airflow_ett.metric.plans.advice.levers import LEVERS
from tests.metric.plans.made_jobs import HOUR, SECOND, Result, job

COLD = {"compile": 2000, "compiles": [{"s": 2000, "misses": 9}], "train": 5 * HOUR}
IN_TURN = {
    "first_batch": 500,
    "compile": 700,
    "preproc_creation": 400,
    "train_module_creation": 600,
    "train": 5 * HOUR,
}


def told(attempt: dict[str, Any], *levers: tuple[str, str, str | None]) -> dict[str, Any]:
    rows = [{"lever": name, "outcome": out, "reason": why} for name, out, why in levers]
    return attempt | {"levers": rows}


def the(key: str, *jobs: Result) -> Advice | None:
    return next((item for item in advise(jobs).items if item.key == key), None)


def test_why_the_cache_missed_stands_with_what_that_costs() -> None:
    missed = told(COLD, ("compile_cache", "missed", "the model's code has changed"))
    found = the("compile_cache", job(COLD, COLD), job(missed, run="r2", begin_s=9))
    assert found is not None
    assert found.title == "See why the compile cache did not help"
    assert found.evidence.endswith(
        " The newest run has the compile cache already: missed (the model's code has changed)."
    )
    assert "Add " not in found.evidence


def test_each_outcome_is_told_once_and_the_last_ones() -> None:
    again = told(COLD, *(("compile_cache", "missed", f"reason {n}") for n in range(5)))
    found = the("compile_cache", job(again, again, again))
    assert found is not None
    told_last = "already: missed (reason 2), missed (reason 3), missed (reason 4)."
    assert found.evidence.endswith(told_last)


@pytest.mark.parametrize("outcome", ["used", "unable"])
def test_a_lever_that_is_but_one_way_is_not_to_blame(outcome: str) -> None:
    waits = {"data_wait": HOUR, "train": 5 * HOUR}
    without, with_it = job(waits), job(told(waits, ("parcels", outcome, None)), run="r2", begin_s=9)
    found, again = the("data_wait", without), the("data_wait", without, with_it)
    assert found is not None
    assert again is not None
    assert found.title == again.title == "Halve the waiting for data"
    assert "Where workers make batches fast enough, ett.parcels(loader, 16)" in found.evidence
    assert "parcels" not in again.evidence


def test_what_an_older_run_told_is_over() -> None:
    missed = told(COLD, ("compile_cache", "missed", "nothing is kept yet"))
    found = the("compile_cache", job(missed, missed), job(COLD, run="r2", begin_s=9))
    assert found is not None
    assert found.title == "Share the compile cache between attempts"
    assert found.evidence.endswith("Add ett.compile_cache(model) before the first compilation.")


def test_another_tasks_newer_run_says_nothing_of_this_one() -> None:
    warm = {"compile": 40, "compiles": [{"s": 40, "hits": 9}], "train": 5 * HOUR}
    other = told(warm, ("compile_cache", "used", None))
    jobs = job(COLD, COLD, task="a"), job(other, task="b", run="r2", begin_s=9)
    found = the("compile_cache", *jobs)
    assert found is not None
    assert "Add ett.compile_cache" in found.evidence


@pytest.mark.parametrize(("lever", "saved_s"), [("fast_batch", 500), ("parallel_init", 400)])
def test_what_ran_at_the_same_time_already_saves_nothing_more(lever: str, saved_s: int) -> None:
    used = told(IN_TURN, (lever, "used", None))
    unable = told(IN_TURN, (lever, "unable", "no specification"))
    assert the(lever, job(used, used)) is None
    found = the(lever, job(used, unable))
    assert found is not None
    assert found.saved_ns == saved_s * SECOND
    assert "used, unable (no specification)." in found.evidence


def test_together_counts_no_more_of_them_either() -> None:
    jobs = Jobs([job(told(IN_TURN, ("fast_batch", "used", None)), IN_TURN)])
    proposal = LEVERS["fast_batch"](jobs)
    assert proposal is not None
    alone = saving(jobs, proposal).weighed.total()
    assert together(jobs, [proposal]) == alone == 8 * 500 * SECOND
