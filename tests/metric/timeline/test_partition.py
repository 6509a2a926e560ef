"""The packed spans against a plain list of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric.result import Booking
from airflow_ett.metric.timeline import partition
from airflow_ett.metric.timeline.partition import Partition

NAMES = [Booking(phase, part) for phase in "abcd" for part in ("one", "two")]
BOOKED = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(NAMES)), max_size=40)


@pytest.fixture(scope="module", params=[1, 3, 64], autouse=True)
def stride(request) -> Iterator[None]:
    """How often the sums are kept must not matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "_STRIDE", request.param)
        yield


def made(begin: int, booked: list[tuple[int, Booking]]) -> Partition:
    found = Partition(begin)
    for length, booking in booked:
        found.book(found.end_ns + length, found.key(booking))
    return found


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 50), BOOKED)
def test_sums_up_to_any_moment(begin, booked) -> None:
    found = made(begin, booked)
    line = [booking for length, booking in booked for _ in range(length)]
    assert (found.begin_ns, found.end_ns) == (begin, begin + len(line))
    assert +found.total() == Counter(line)
    for moment in range(begin - 2, found.end_ns + 3):
        assert +found.until(moment) == Counter(line[: max(0, moment - begin)])
    assert found.last_phase == (line[-1].phase if line else None)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 50), BOOKED)
def test_spans_lie_side_by_side(begin, booked) -> None:
    found = made(begin, booked)
    plain: list[tuple[int, int, Booking]] = []
    at = begin
    for length, booking in booked:
        if plain and plain[-1][2] == booking:
            plain[-1] = (plain[-1][0], at + length, booking)
        else:
            plain.append((at, at + length, booking))
        at += length
    assert len(found) == len(plain)
    whole = [(start, end, booking.phase) for start, end, booking in plain]
    assert list(found.spans(len(found), found.end_ns)) == whole
    for count in range(1, len(plain)):
        # As it was before more was booked.
        assert list(found.spans(count, plain[count - 1][1])) == whole[:count]


@settings(max_examples=200, deadline=None)
@given(BOOKED, st.integers(0, 40))
def test_packed_neighbours_of_one_phase_are_one_span(booked, count) -> None:
    found = made(0, booked)
    count = min(count, len(found))
    spans = [*found.spans(count, found.end_ns)]
    wanted = [(next(group)[0], phase) for phase, group in groupby(spans, itemgetter(2))]
    begins, keys, phases = found.packed(count)
    assert [*zip(begins, (phases[key] for key in keys), strict=True)] == wanted


def test_many_names_cost_no_more_sums_than_spans() -> None:
    found = Partition(0)
    for number in range(3000):
        found.book(number + 1, found.key(Booking(f"mine {number}", "wasted")))
    assert sum(len(sums) for _, sums in found._marks) <= 2 * len(found) + 64
    assert found.until(1234).total() == 1234
