"""What shorter phases would buy: published figures, composition rules, exact sums."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.plans.whatif import Change, Overlap, Reduce, halves, what_if

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def course(history, *starts: dict[str, float], trained: float = 10) -> Any:
    """A job whose attempts each go through these phases (seconds) and then train; all but the last
    fail then.
    """
    at: float = 0
    history.open()
    for number, phases in enumerate(starts, 1):
        attempt, cursor = (number, 0, 0), 10 * number
        history.submit(at, number, "first" if number == 1 else "relaunch")
        history.state(at, number, allocated=at).session(at, at, attempt, hwm=cursor - 10)
        for name, length in phases.items():
            history.phase(name, at, at + length, attempt)
            at += length
        history.steps(at, at + trained, (cursor - 10, cursor), attempt, steps=10)
        at += trained
        if number < len(starts):
            history.ended(at, "infrastructure", attempt)
    history.session_ended(at, attempt=attempt).ended(at, None, attempt).job_ended(at)
    return history.measure()


def test_the_published_ablation_of_the_time_to_start(history) -> None:
    # A model of arXiv 2610.02057: 31.8 min, less communication, fast batch and parallel init.
    minutes = {
        **{"process_group_init": 4.0, "preproc_creation": 2.3, "train_module_creation": 6.0},
        **{"checkpoint_restore": 4.7, "compile": 10.0, "first_batch": 4.8},
    }
    job = course(history, {name: 60 * length for name, length in minutes.items()}, trained=600)
    assert job.tts_ns == round(31.8 * MINUTE)
    steps: list[Change] = [
        Reduce("process_group_init", ns=round(1.6 * MINUTE)),
        Overlap(("first_batch", "compile")),
        Overlap(("preproc_creation", "train_module_creation")),
    ]
    left = [job.tts_ns - what_if([job.as_dict()], steps[:n]).saved_ns for n in (1, 2, 3)]
    assert [round(ns / MINUTE, 2) for ns in left] == [30.2, 25.4, 23.1]
    assert round(100 * left[-1] / job.tts_ns - 100, 2) == -27.36


def test_a_start_path_saving_counts_once_per_attempt(history) -> None:
    job = course(history, *3 * [{"device_init": 9, "first_batch": 5}])
    assert job.nof == 2
    found = what_if([job.as_dict()], [Reduce("device_init", ns=4 * SECOND)])
    assert found.saved_ns == (1 + job.nof) * 4 * SECOND
    assert found.saved_accelerator_ns == 8 * found.saved_ns
    assert (found.ett_pct_before, found.ett_pct_after) == (job.ett_pct, 100 * 30 / (72 - 12))
    assert (found.wall_ns, found.effective_ns) == (job.wall_ns, job.effective_ns)


def test_no_attempt_saves_more_than_it_has(history) -> None:
    job = course(history, {"device_init": 9, "first_batch": 1}, {"device_init": 2}).as_dict()
    assert what_if([job], [Reduce("device_init", ns=4 * SECOND)]).saved_ns == (4 + 2) * SECOND
    assert what_if([job], [Reduce("compile", ns=SECOND)]).saved_ns == 0
    assert what_if([job, job], [Reduce("device_init", share=Fraction(1))]).saved_ns == 22 * SECOND


def test_of_overlapped_phases_the_shorter_is_saved_in_each_attempt(history) -> None:
    job = course(history, {"compile": 7, "first_batch": 5}, {"compile": 2, "first_batch": 6})
    fast_batch = Overlap(("first_batch", "compile"))
    assert what_if([job.as_dict()], [fast_batch]).saved_ns == (5 + 2) * SECOND
    # A reduction comes first: of the first attempt 3 s of compile are left beside 5 s.
    both = what_if([job.as_dict()], [fast_batch, Reduce("compile", ns=4 * SECOND)])
    assert [gain.saved_ns // SECOND for gain in both.changes] == [4 + 2, 3 + 0]
    assert both.saved_ns == 9 * SECOND


def test_three_phases_at_once_take_as_long_as_the_longest(history) -> None:
    job = course(history, {"compile": 7, "device_init": 4, "first_batch": 5}).as_dict()
    together = Overlap(("first_batch", "compile", "device_init"))
    assert what_if([job], [together]).saved_ns == 9 * SECOND


def test_time_in_the_queue_holds_no_accelerators(history) -> None:
    history.open().submit(0).state(9, allocated=8).session(8, 8).phase("first_batch", 8, 10)
    history.train(10, 20, (0, 10)).session_ended(20).ended(20, None).job_ended(20)
    found = what_if([history.measure().as_dict()], [Reduce("queue", share=Fraction(1, 4))])
    assert (found.saved_ns, found.saved_accelerator_ns) == (2 * SECOND, 0)


def test_every_phase_that_can_shrink_halved(history) -> None:
    job = course(history, {"compile": 8, "first_batch": 4}).as_dict()
    found = what_if([job], halves([job]))
    assert {g.change: g.saved_ns // SECOND for g in found.changes} == {
        "compile less 50%": 4,
        "first_batch less 50%": 2,
    }


def test_changes_that_make_no_sense(history) -> None:
    job = course(history, {"compile": 8, "first_batch": 4}).as_dict()
    for changes, problem in (
        ([Reduce("train", ns=1)], "train: can't be reduced"),
        ([Overlap(("compile", "unattributed"))], "unattributed: can't be reduced"),
        ([Reduce("complie", ns=1)], "complie: no job has this phase; there are compile, first"),
        ([Reduce("compile", ns=1), Reduce("compile", ns=2)], "compile: changes twice"),
        (2 * [Overlap(("compile", "first_batch"))], "compile: changes twice"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            what_if([job], changes)
    for wrong in (
        lambda: Reduce("compile", ns=-1),
        lambda: Reduce("compile", share=Fraction(3, 2)),
        lambda: Overlap(("compile", "compile")),
    ):
        with pytest.raises(ConfigurationError, match="compile"):
            wrong()


PHASES = ("queue", "device_init", "compile", "first_batch", "checkpoint_save")
LENGTH = st.integers(min_value=0, max_value=10**15)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    attempts = draw(st.lists(st.dictionaries(st.sampled_from((*PHASES, "train")), LENGTH)))
    phases: Counter[str] = Counter()
    for attempt in attempts:
        phases.update(attempt)
    return {
        "ett_pct": 1.0,
        "accelerators": draw(st.integers(0, 9)),
        "wall_ns": phases.total(),
        "effective_ns": phases["train"],
        "phases_ns": phases,
        "attempts": [{"phases_ns": attempt} for attempt in attempts],
    }


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    share = st.fractions(min_value=0, max_value=1)
    cut = draw(st.dictionaries(st.sampled_from(PHASES), st.tuples(LENGTH, share), max_size=3))
    order = draw(st.permutations(PHASES))
    overlaps = draw(st.sampled_from([(), (order[:2],), (order[:3], order[3:])]))
    return [
        *(Reduce(phase, ns, part) for phase, (ns, part) in cut.items()),
        *(Overlap(tuple(group)) for group in overlaps),
    ]


@settings(deadline=None)
@given(st.lists(jobs(), min_size=1, max_size=3), changes())
def test_nothing_is_saved_twice_and_order_is_without_meaning(
    found: list[dict[str, Any]], wanted: list[Change]
) -> None:
    result = what_if(found, wanted)
    assert 0 <= result.saved_ns <= result.wall_ns - result.effective_ns
    assert sum(gain.saved_ns for gain in result.changes) == result.saved_ns
    held = sum(gain.saved_accelerator_ns for gain in result.changes)
    assert held == result.saved_accelerator_ns
    alone = {str(change): what_if(found, [change]).saved_ns for change in wanted}
    assert all(gain.saved_ns <= alone[gain.change] for gain in result.changes)
    assert result.saved_ns >= max(alone.values(), default=0)
    if result.ett_pct_after is not None and result.ett_pct_before is not None:
        assert result.ett_pct_before <= result.ett_pct_after <= 100
    for order in permutations(wanted):
        other = what_if(found, list(order))
        assert set(other.changes) == set(result.changes)
        assert other.saved_ns == result.saved_ns


@given(jobs(), st.permutations(PHASES[:3]))
def test_the_order_of_overlapping_phases_is_without_meaning(
    job: dict[str, Any], order: list[str]
) -> None:
    one, other = (what_if([job], [Overlap(tuple(p))]) for p in (PHASES[:3], order))
    assert (one.saved_ns, one.saved_accelerator_ns) == (other.saved_ns, other.saved_accelerator_ns)
