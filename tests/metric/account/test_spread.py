"""Maintenance whose edge cuts an interval takes its share of each of the interval's spans."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric import measure

S = 10**9


@pytest.fixture
def halves(new_history):
    """500 waits and steps of 1 s each, told one by one or as one interval."""

    def told(*, coalesced: bool):
        history = new_history().open("local").submit(0).session(0, 1).steps(1, 2, (0, 1))
        if coalesced:
            return history.steps(2, 1002, (1, 501), steps=500, wait=500)
        for step in range(500):
            history.steps(2 + 2 * step, 4 + 2 * step, (1 + step, 2 + step), wait=1)
        return history

    return told


@pytest.mark.parametrize("stretch", [(2, 502), (502, 1002), (200, 300), (100, 101)])
def test_coalesced_or_not_is_the_same(halves, stretch) -> None:
    exclude = [tuple(second * S for second in stretch)]
    fine, coarse = (halves(coalesced=c).events for c in (False, True))
    one, two = measure(fine, exclude=exclude), measure(coarse, exclude=exclude)
    assert one.wall_ns == two.wall_ns
    assert abs(one.effective_ns - two.effective_ns) <= S
    cuts = stretch[0] > 2 or stretch[1] < 1002
    assert (two.quality == "partial") is cuts
    assert one.quality == "complete"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1100), st.integers(0, 1100)), max_size=5))
def test_every_second_is_taken_once(new_history, stretches) -> None:
    history = new_history().open("local").submit(0).session(0, 1).steps(1, 2, (0, 1))
    history.steps(2, 1002, (1, 501), steps=500, wait=300, other=77)
    taken = {second for begin, end in stretches for second in range(begin, min(end, 1002))}
    metric = measure(history.events, exclude=[(begin * S, end * S) for begin, end in stretches])
    assert metric.excluded_ns == len(taken) * S
    assert metric.wall_ns == sum(metric.phases_ns.values()) == (1002 - len(taken)) * S
    left = 1000 - len(taken & {*range(2, 1002)})
    steps = metric.effective_ns - S * (1 not in taken)
    assert abs(steps - left * S * 623 // 1000) <= 1
