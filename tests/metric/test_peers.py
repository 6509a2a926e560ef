"""Timelines from the tests of Google's ml-goodput-measurement 0.2.3, and a probe of our own.

Each goes through the importer. The peer's number stands beside ours, with the reason wherever they
differ; where the peer is installed, it computes its own.

Source: https://github.com/AI-Hypercomputer/ml-goodput-measurement/blob/main/
ml_goodput_measurement/tests/goodput_test.py
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from airflow_ett.events import Event
from airflow_ett.metric import JobMetric, measure
from airflow_ett.peers import Problem, read_ml_goodput

BEGIN = 1_700_000_000.0
Entry = dict[str, Any]


def told(name: str, second: float, **fields: Any) -> Entry:
    return {"job_name": "j", **fields, f"{name}_time": BEGIN + second}


def steps(first: int, *seconds: float) -> list[Entry]:
    """Consecutive steps by their starts."""
    return [told("step_start", at, step_count=first + n) for n, at in enumerate(seconds)]


def phase(name: str, begin: float, end: float, **fields: Any) -> list[Entry]:
    return [told(f"{name}_start", begin, **fields), told(f"{name}_end", end, **fields)]


def save(begin: float, length: float, step: int) -> Entry:
    """A blocking save as Orbax logs it."""
    blocking = "checkpoint_manager_blocking"
    return {
        "job_name": "j",
        "event_type": "save",
        "step": step,
        "directory": "gs://bucket/path",
        f"{blocking}_start_time": BEGIN + begin,
        f"{blocking}_duration_secs": length,
        "wait_for_prev_duration_secs": 1.0,
        "get_old_steps_duration_secs": 3.0,
        "checkpointer_blocking_duration_secs": 2.0,
    }


class Case(NamedTuple):
    """A timeline, what the peer makes of it, and what we do (``asked``: with first-step compile).

    The phases are seconds of ours, not asked; ``problem`` is what the importer says to it.
    """

    entries: list[Entry]
    peer_pct: float
    peer_disruptions: int
    pct: float
    asked_pct: float
    nof: int
    phases: dict[str, float]
    problem: str = ""


RESTART = [
    told("job_start", 0),
    *phase("tpu_init", 0, 1),
    *phase("training_prep", 1, 3),
    *phase("data_loading", 3, 5),
    *steps(0, 5, 13, 16, 19, 22),
    told("job_start", 30),
    *steps(2, 35, 43, 46),
    told("job_end", 49),
]
INIT = {"device_init": 1, "pre_train": 2, "first_batch": 2, "trainer_init": 5}

CASES = {
    # test_goodput_calculator: five steps of 3 s after 5 s of start-up. The same.
    "gp01_plain": Case(
        [told("job_start", 0), *steps(0, 5, 8, 11, 14, 17), told("job_end", 20)],
        *(75.0, 0, 75.0, 75.0, 0),
        {"trainer_init": 5, "train": 15},
    ),
    # test_goodput_with_startup_badput: the first step takes 5 s more, which the peer guesses to be
    # start-up. A step is a step here, unless something says otherwise; the importer can be asked.
    "gp02_first_step_extra": Case(
        [told("job_start", 0), *steps(0, 5, 13, 16, 19, 22), told("job_end", 25)],
        *(60.0, 0, 80.0, 60.0, 0),
        {"trainer_init": 5, "train": 20},
    ),
    # test_badput_calculator_wasted_progress_and_disruptions: dies after 22, restarts at 30 from
    # step 2. The peer counts the repeated steps as good and their first run as wasted. Here the
    # first run advanced and its repetition is replay: 17 s, and 3 s of step 4, whose first run
    # nobody saw end. But for the first steps' excess both runs take the same time, so that, asked,
    # the numbers agree.
    "gp05_lifecycle_disruption": Case(
        RESTART,
        *(30.6122, 1, 40.8163, 30.6122, 1),
        {**INIT, "train": 20, "replay": 11, "failure_detection": 8},
    ),
    # test_badput_calculator_checkpoint_badput: a save said to block for 6 s, told after the fact,
    # and a step that begins in its middle. The peer takes the 6 s off good time, wherever they lie.
    # Here a moment has one phase, and what began last is the inner one: 3 s of the save, then the
    # step. (Asked, the excess of the first step is said to lie in these 3 s, too.)
    "gp06_checkpoint_badput": Case(
        [*RESTART[:12], save(10, 6, 1), *RESTART[12:]],
        *(18.3673, 1, 34.6939, 30.6122, 1),
        {**INIT, "train": 17, "checkpoint_save": 3, "replay": 11, "failure_detection": 8},
        "checkpoint_save began before the step",
    ),
    # test_badput_calculator_custom_sync_badput: 5 s of evaluation between two steps. The same.
    "gp08_custom_eval": Case(
        [
            told("job_start", 0),
            *phase("tpu_init", 0, 1),
            *steps(0, 6, 9, 12, 15, 18),
            *phase("custom_badput_event", 21, 26, custom_badput_event_type="eval_step"),
            *steps(5, 26, 29, 32, 35, 38),
            told("job_end", 41),
        ],
        *(73.1707, 0, 73.1707, 73.1707, 0),
        {"device_init": 1, "trainer_init": 5, "train": 30, "wasted.eval_step": 5},
    ),
    # A probe of our own: 100 s away and 5 s of start, then the very next step. No step number
    # repeats, so the peer sees no disruption and takes the outage for a step of 108 s.
    "probe1_clean_resume_no_replay": Case(
        [
            told("job_start", 0),
            *steps(0, 5, 8, 11, 14, 17),
            told("job_start", 120),
            *steps(5, 125, 128, 131, 134, 137),
            told("job_end", 140),
        ],
        *(96.4286, 0, 21.4286, 21.4286, 1),
        {"trainer_init": 10, "train": 30, "failure_detection": 100},
        "the step before the restart has no end",
    ),
    # Another one: dies after 5, and again before its first step, then repeats step 1. The share is
    # the same, but the peer sees one disruption: the number that repeats.
    "probe2_dies_before_its_first_step": Case(
        [
            told("job_start", 0),
            *steps(0, 1, 3, 5),
            *(told("job_start", second) for second in (10, 20)),
            *steps(1, 21, 23, 25),
            told("job_end", 27),
        ],
        *(29.6296, 1, 29.6296, 29.6296, 2),
        {"trainer_init": 1 + 1, "train": 4 + 4, "failure_detection": 15, "replay": 2},
    ),
}


def imported(case: Case, *, asked: bool = False) -> JobMetric:
    lines = (json.dumps(entry) for entry in case.entries)
    story = list(read_ml_goodput(lines, first_step_compile=asked))
    problems = [item.text for item in story if isinstance(item, Problem)]
    assert "".join(problems).startswith(case.problem)
    assert len(problems) == bool(case.problem)
    return measure(item for item in story if isinstance(item, Event))


@pytest.mark.parametrize("name", CASES)
def test_ours(name: str, invariants, in_seconds) -> None:
    case = CASES[name]
    metric = imported(case)
    invariants(metric)
    assert metric.ett_pct == pytest.approx(case.pct, abs=1e-4)
    assert metric.nof == case.nof
    assert in_seconds(metric.phases_ns) == case.phases
    assert metric.frozen


@pytest.mark.parametrize("name", CASES)
def test_ours_when_the_first_steps_excess_is_asked_to_be_compile(name: str, invariants) -> None:
    case = CASES[name]
    metric = imported(case, asked=True)
    invariants(metric)
    assert metric.ett_pct == pytest.approx(case.asked_pct, abs=1e-4)


class InMemory:
    """Stands in for Cloud Logging."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    def read_cloud_logging_entries(self, *_: object) -> tuple[list[Entry], Any]:
        return self.entries, (datetime.fromtimestamp(BEGIN, UTC), "id")


@pytest.mark.parametrize("name", CASES)
def test_the_peers(name: str, tmp_path) -> None:
    goodput = pytest.importorskip(
        "ml_goodput_measurement.src.goodput", reason="ml-goodput-measurement is not installed"
    )
    case = CASES[name]
    peer = goodput.GoodputCalculator("j", "log", InMemory(case.entries), cache_dir=str(tmp_path))
    percent, _, _ = peer.get_job_goodput(include_badput_breakdown=True)
    assert percent == pytest.approx(case.peer_pct, abs=1e-4)
    assert peer._goodput_cache.get_goodput_info().number_of_disruptions == case.peer_disruptions


@pytest.mark.parametrize("cause", ["infrastructure", None])
def test_an_outage_with_a_clean_resume(history, cause: str | None) -> None:
    """The probe as our own log tells it: 21.4% and one failure, whether or not anybody saw it."""
    history.open("local").submit(0).session(0, 0)
    for number, second in enumerate([5, 8, 11, 14, 17]):
        history.steps(second, second + 3, (number, number + 1))
    if cause:
        history.ended(22, cause)
    history.submit(120, 2, "relaunch").session(120, 120, (2, 0, 0), hwm=5)
    for number, second in enumerate([125, 128, 131, 134, 137], 5):
        history.steps(second, second + 3, (number, number + 1), (2, 0, 0))
    history.session_ended(140, attempt=(2, 0, 0)).ended(140, None, (2, 0, 0))
    metric = history.job_ended(140).measure()
    assert round(metric.ett_pct, 1) == 21.4
    assert metric.effective_ns == 30 * 10**9
    assert metric.nof_by_cause == {cause or "unknown": 1}
    assert [r.ns // 10**9 for r in metric.ttr] == [105]
