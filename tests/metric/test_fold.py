"""Folding in portions: the order, the portions and the looks in between never show."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import Event
from airflow_ett.metric import Fold, JobMetric, measure
from airflow_ett.metric.timeline import partition, track

SEEDS = st.integers(0, 10**9)


@pytest.fixture(scope="module", autouse=True)
def short_lengths() -> Iterator[None]:
    """Strides and patience as short as the lives, so that every turn of them is taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(track, "_CHUNK", 2)
        patch.setattr(track, "_PATIENCE", 2)
        patch.setattr(partition, "_STRIDE", 2)
        yield


def same(got: JobMetric, wanted: JobMetric) -> None:
    assert got.as_dict() == wanted.as_dict()
    assert list(got.spans) == list(wanted.spans)
    assert got == wanted


def arranged(events: list[Event], rng: random.Random) -> list[Event]:
    """In one of the orders in which logs come in."""
    match rng.randint(0, 3):
        case 0:
            return rng.sample(events, len(events))
        case 1:
            return sorted(events, key=lambda event: event.time_ns)
        case 2:
            return sorted(events, key=lambda event: event.time_ns + rng.randint(0, 12))
    return events


def look(rng: random.Random) -> dict[str, Any]:
    """Any present, any last sign, any stretches of maintenance."""
    if rng.random() < 0.5:
        return {}
    stretches = [(rng.randint(0, 300), rng.randint(0, 300)) for _ in range(rng.randint(0, 2))]
    moments = [rng.choice([None, rng.randint(0, 600)]) for _ in range(2)]
    return {"now_ns": moments[0], "last_sign_ns": moments[1], "exclude": stretches}


@settings(max_examples=700, deadline=None)
@given(SEEDS)
def test_each_look_sees_what_one_of_all_events_sees(lives, seed) -> None:
    rng = random.Random(seed)
    events = arranged(lives.any_life(seed), rng)
    fold, at = Fold(), 0
    while at < len(events):
        portion = events[at : at + rng.randint(1, 4)]
        at += len(portion)
        fold.add(iter(portion))
        if rng.random() < 0.2:
            fold.add(rng.sample(events[:at], min(at, 2)))
        if rng.random() < 0.5:
            how = look(rng)
            same(fold.measure(**how), measure(events[:at], **how))


@settings(max_examples=1500, deadline=None)
@given(SEEDS)
def test_order_copies_and_looks_change_nothing(lives, seed) -> None:
    rng = random.Random(seed)
    events = lives.any_life(seed)
    shuffled = arranged([*events, *rng.sample(events, len(events) // 2)], rng)
    cuts = sorted(rng.sample(range(len(shuffled) + 1), min(3, len(shuffled))))
    fold = Fold()
    for begin, end in zip([0, *cuts], [*cuts, len(shuffled)], strict=True):
        fold.add(shuffled[begin:end])
        fold.measure(**look(rng))
    same(fold.measure(), measure(events))


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_a_strangers_events_change_only_the_quality(lives, seed) -> None:
    rng = random.Random(seed)
    events = lives.any_life(seed)
    others = [replace(event, job="k") for event in lives.any_life(seed + 1)]
    mixed = rng.sample([*events, *others], len(events) + len(others))
    fold = Fold()
    for event in mixed:
        fold.add([event])
        if rng.random() < 0.1:
            fold.measure()
    same(fold.measure(), measure(mixed))
    if events:
        alone, both = measure(events).as_dict(), measure(mixed).as_dict()
        noted = {"events of 1 other jobs were skipped"} if others else set()
        assert {*both.pop("quality_reasons")} == {*alone.pop("quality_reasons")} | noted
        assert {**both, "quality": None} == {**alone, "quality": None}


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_settled_time_is_the_same_whenever_it_settles(lives, seed) -> None:
    """However long the strides and the patience are, the numbers are the same."""
    events = lives.any_life(seed)
    fold = Fold()
    for at in range(0, len(events), 3):
        fold.add(events[at : at + 3])
        fold.measure()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(track, "_CHUNK", 512)
        patch.setattr(track, "_PATIENCE", 10**9)
        patch.setattr(partition, "_STRIDE", 64)
        same(fold.measure(), measure(events))


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_a_fragment_that_tells_of_steps_is_one_all_the_same(history, behind) -> None:
    """Whether it is the newest that is known or lies far behind."""
    history.open().submit(0).session(0, 0).steps(0, 10, (0, 1)).steps(10, 20, (1, 2))
    history.steps(20, 30, (2, 3), fragment=True)
    history.events[-1].data["steps"] = 1
    for at in range(behind + 1):
        history.steps(30 + 10 * at, 40 + 10 * at, (2 + at, 3 + at))
    assert history.measure().phases_ns == {"train": (40 + 10 * behind) * 10**9}


def test_where_the_loop_begins_may_be_told_late(history) -> None:
    """After an interruption nothing but a phase's component shows it."""
    history.open().submit(0).session(0, 1).add("failure", 5, attempt=(1, 0, 0), rank=0)
    history.phase("own", 7, 9).steps(10, 20, (0, 1)).steps(20, 30, (1, 2)).steps(30, 40, (2, 3))
    history.ended(41, "application")
    fold = Fold()
    fold.add(history.events)
    assert fold.measure().components_ns["wasted"] == 4 * 10**9
    fold.add(history.phase("first_batch", 6, 8).events[-2:])
    assert fold.measure().components_ns["wasted"] == 5 * 10**9
    same(fold.measure(), measure(history.events))


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_until_the_last_rank_steps_it_leads_however_many_steps_the_main_one_made(
    history, behind
) -> None:
    history.open().submit(0).session(0, 0).session(0, 0, rank=1).steps(25, 35, (0, 1), rank=1)
    for at in range(4 + behind):
        history.steps(10 * at, 10 * (at + 1), (at, at + 1))
    assert history.measure().phases_ns["train"] == (15 + 10 * behind) * 10**9


@pytest.mark.parametrize("behind", [1, 2, 6])
def test_of_intervals_that_overlap_the_later_one_counts(history, behind) -> None:
    history.open().submit(0).session(0, 0).steps(0, 10, (0, 1)).steps(10, 20, (1, 2))
    history.steps(15, 30, (2, 3), wait=5)
    for at in range(3, 3 + behind):
        history.steps(10 * at, 10 * (at + 1), (at, at + 1))
    train = 10 + 5 + 10 + 10 * behind
    assert history.measure().phases_ns == {"train": train * 10**9, "data_wait": 5 * 10**9}
