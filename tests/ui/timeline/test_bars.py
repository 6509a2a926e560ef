"""Fewer bars than spans: the sums stay, and nothing moves far."""

import time
from array import array
from collections import Counter
from itertools import accumulate, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.ui.timeline.bars import Bar, Row, _Scale, lumped, merged, stacked

PHASES = ("a", "b", "c")
_SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3000)), max_size=150)


def row(spans: list[tuple[int, int]], begin: int = 0, number: int = 0) -> Row:
    """Spans as key and length."""
    edges = accumulate((length for _, length in spans), initial=begin)
    return Row(number, array("q", edges), array("I", (key for key, _ in spans)), PHASES)


def alone(one: Row) -> list[Bar]:
    return [
        Bar(one.number, PHASES[key], begin, end, 1, begin, end)
        for key, (begin, end) in zip(one.keys, pairwise(one.edges), strict=True)
    ]


def sums(bars: list[Bar]) -> tuple[Counter[tuple[int, str]], Counter[tuple[int, str]]]:
    ns: Counter[tuple[int, str]] = Counter()
    spans: Counter[tuple[int, str]] = Counter()
    for one in bars:
        ns[one.row, one.phase] += one.end_ns - one.begin_ns
        spans[one.row, one.phase] += one.spans
    return ns, spans


@settings(deadline=None)
@given(_SPANS, _SPANS, st.integers(1, 60))
def test_merging_keeps_the_sums_and_the_lane_whole(
    first: list[tuple[int, int]], second: list[tuple[int, int]], most: int
) -> None:
    rows = [row(first)]
    rows.append(row(second, rows[0].edges[-1], 1))
    plain = [one for each in rows for one in alone(each)]
    end = rows[1].edges[-1]
    found = merged(rows, (0, end), [(end // 4, end // 2)], most)
    assert sums(found) == sums(plain)
    assert all(one.end_ns == two.begin_ns for one, two in pairwise(found))
    assert all(one.first_ns <= one.last_ns for one in found)
    if len(plain) <= most:
        assert found == plain
    # What no merging makes less: each phase of each row, in the detail and beside it.
    assert len(found) <= max(most, 30)


def test_neighbours_that_are_wide_enough_stay_alone() -> None:
    one = row([(0, 10**6), *((1 + n % 2, 1) for n in range(10))])
    assert merged([one], (0, 10**6 + 10), (), 5) == [
        Bar(0, "a", 0, 10**6, 1, 0, 10**6),
        Bar(0, "b", 10**6, 10**6 + 5, 5, 10**6, 10**6 + 9),
        Bar(0, "c", 10**6 + 5, 10**6 + 10, 5, 10**6 + 1, 10**6 + 10),
    ]


def test_where_a_reader_zooms_to_less_is_merged() -> None:
    one = row([(n % 2, 10) for n in range(2000)])
    detail = (10_000, 10_200)
    found = merged([one], (0, 20_000), [detail], 1000)
    assert len(found) <= 1000

    def inside(bars: list[Bar]) -> list[Bar]:
        return [bar for bar in bars if detail[0] <= bar.begin_ns < detail[1]]

    assert inside(found) == inside(alone(one))


def test_bars_apart_from_each_other_are_lumped() -> None:
    bars = [
        Bar(n % 2, "upload", n * 100, n * 100 + 10, 1, n * 100, n * 100 + 10) for n in range(99)
    ]
    found = lumped(bars, (0, 10_000), 20)
    assert len(found) <= 20
    assert sums(found) == sums(bars)
    assert lumped(bars, (0, 10_000), 99) == bars


_STRETCHES = st.tuples(st.integers(0, 9000), st.integers(0, 9000)).map(
    lambda two: (min(two), max(two))
)


@given(st.lists(_STRETCHES, max_size=6), st.lists(st.integers(0, 9000), max_size=20))
def test_of_overlapping_details_the_shortest_counts(
    details: list[tuple[int, int]], times: list[int]
) -> None:
    scale = _Scale((0, 10_000), details, 24)
    for at in sorted(times):
        lengths = [end - begin for begin, end in details if begin <= at < end]
        least = min(lengths, default=10_000) // 100
        edges = [edge for detail in details for edge in detail if edge > at]
        assert scale.reach(at) == min(at + least, *edges, 10**9)


def test_thousands_of_details_cost_little() -> None:
    count = 4_000
    spans = row([(key % 2, 10) for key in range(2 * count)])
    details = [(place, place + 15) for place in range(0, 20 * count, 20)]
    begin = time.process_time()
    assert merged([spans], (0, 20 * count), details, 100)
    assert time.process_time() - begin < 3


_STRETCHES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 50), st.integers(1, 20)), max_size=30
)


def test_bars_at_once_lie_below_each_other_and_fill_what_is_free() -> None:
    def bar(name: str, begin: int, end: int, number: int = 0) -> Bar:
        return Bar(number, name, begin, end, 1, begin, end)

    bars = [bar("a", 0, 9), bar("b", 1, 3), bar("c", 3, 5), bar("d", 4, 6), bar("e", 0, 9, 1)]
    depths = {one.phase: depth for one, depth in stacked(bars, 6)}
    assert depths == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 0}
    assert {depth for _, depth in stacked(bars, 2)} == {0, 1}


@given(_STRETCHES)
def test_no_bar_hides_another_of_its_row_where_there_is_room(
    stretches: list[tuple[int, int, int]],
) -> None:
    bars = [Bar(n, "x", at, at + length, 1, at, at + length) for n, at, length in stretches]
    placed = stacked(bars, 30)
    assert sorted(one for one, _ in placed) == sorted(bars)
    for number, (one, depth) in enumerate(placed):
        for other, at in placed[:number]:
            apart = other.end_ns <= one.begin_ns or one.end_ns <= other.begin_ns
            assert apart or (one.row, depth) != (other.row, at)
