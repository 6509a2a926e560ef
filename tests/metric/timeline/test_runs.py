"""Runs of steps without a break are booked at once: nobody may see the difference."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric import Fold, measure
from airflow_ett.metric.evidence.rows import Rows
from airflow_ett.metric.timeline import track


@pytest.fixture(scope="module")
def steps(new_history):
    """A life of steps of which most follow each other at once; some wait, repeat or come late."""

    def told(seed: int):
        rng = random.Random(seed)
        history = new_history().open("local").submit(0).session(0, 1)
        at, cursor = 2, 0
        for _ in range(rng.randint(2, 60)):
            odd = rng.random() < 0.15
            at += rng.choice([0, 3]) if odd else 0
            cursor = max(0, cursor - rng.choice([0, 0, 2])) if odd else cursor
            count = rng.randint(1, 3)
            wait, other = (rng.choice([0, 1]), rng.choice([0, 1])) if odd else (0, 0)
            end = at + wait + other + rng.randint(1, 4)
            history.steps(at, end, (cursor, cursor + count), steps=count, wait=wait, other=other)
            at, cursor = end, cursor + count
        return history

    return told


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_a_run_is_its_rows(steps, seed) -> None:
    events = steps(seed).events
    fold, rng = Fold(), random.Random(seed)
    at = 0
    while at < len(events):
        portion = rng.randint(1, 9)
        fold.add(events[at : at + portion])
        fold.measure()
        at += portion
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "run", lambda *_: None)
        wanted = measure(events)
    for found in (fold.measure(), measure(events)):
        assert found.as_dict() == wanted.as_dict()
        assert list(found.spans) == list(wanted.spans)


def test_a_run_is_taken_in_large_pieces(new_history) -> None:
    history = new_history().open("local").submit(0).session(0, 1)
    for step in range(3000):
        history.steps(2 + step, 3 + step, (step, step + 1))
    looked_at = 0
    between = Rows.between

    def counted(self, first, end):
        nonlocal looked_at
        looked_at += min(end, len(self)) - first
        return between(self, first, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "between", counted)
        metric = measure(history.events)
    assert metric.effective_ns == 3000 * 10**9
    assert looked_at < 2 * track._CHUNK
