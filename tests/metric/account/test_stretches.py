"""Stretches of the clock: their union, and what is booked in them."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric.account.stretches import booked_by_all, overlapping, union
from airflow_ett.metric.result import Booking
from airflow_ett.metric.timeline.partition import Partition

EDGES = st.integers(-5, 40)
STRETCHES = st.lists(st.tuples(EDGES, EDGES), max_size=6)
LENGTHS = st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=5)


def moments(stretches: list[tuple[int, int]]) -> set[int]:
    return {moment for begin, end in stretches for moment in range(begin, end)}


@settings(max_examples=500, deadline=None)
@given(STRETCHES, EDGES, EDGES)
def test_the_union_covers_the_same_once(stretches, begin, end) -> None:
    found = union(iter(stretches), begin, end)
    assert moments(found) == moments(stretches) & {*range(begin, end)}
    assert all(one < two for one, two in found)
    assert all(one[1] < two[0] for one, two in pairwise(found))


def timelines(lengths: list[list[int]]) -> list[Any]:
    """Stand-ins: attempts one after the other, some of them without any time."""
    made, at = [], 0
    for number, spans in enumerate(lengths):
        part = Partition(at)
        for length in spans:
            part.book(part.end_ns + length, part.key(Booking(f"{number}", "wasted")))
        attempt = SimpleNamespace(begin_ns=at, stop_ns=part.end_ns)

        def between(begin: int, end: int, part: Partition = part) -> Any:
            first = min(max(begin, part.begin_ns), part.end_ns)
            return part.until(max(first, min(end, part.end_ns))) - part.until(first)

        made.append(SimpleNamespace(attempt=attempt, between=between))
        at = part.end_ns
    return made


@settings(max_examples=500, deadline=None)
@given(LENGTHS, STRETCHES, STRETCHES)
def test_what_all_attempts_booked_in_stretches(lengths, stretches, excluded) -> None:
    made = timelines(lengths)
    end = made[-1].attempt.stop_ns
    within = union(stretches, 0, end)
    found = booked_by_all(made, within, [union(excluded, 0, 2**63)] * len(made))
    wanted = moments(within) - moments(excluded)
    for number, one in enumerate(made):
        own = {*range(one.attempt.begin_ns, one.attempt.stop_ns)}
        assert found[Booking(f"{number}", "wasted")] == len(own & wanted)
    assert found.total() == len(wanted)


@settings(max_examples=300, deadline=None)
@given(LENGTHS, st.integers(0, 40), st.integers(1, 40))
def test_which_attempts_lie_in_a_stretch(lengths, begin, length) -> None:
    end = begin + length
    made = timelines(lengths)
    lived = [one for one in made if one.attempt.begin_ns < one.attempt.stop_ns]
    found = [made[number] for number in overlapping(made, begin, end) if made[number] in lived]
    own = {*range(begin, end)}
    wanted = [one for one in lived if own & {*range(one.attempt.begin_ns, one.attempt.stop_ns)}]
    assert found == wanted
