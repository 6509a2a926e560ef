"""The cursor over time: in pieces that go on, replay apart, with as many points as are wanted."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import AttemptId
from airflow_ett.metric import measure
from airflow_ett.metric.progress import Piece, Point, Progress, thinned

FIRST, SECOND = AttemptId(1), AttemptId(2)


def progress(*steps: tuple[int, int, int, int], hwm: int = 0) -> Progress:
    """Steps as begin, end, cursor from, cursor to."""
    columns = zip(*steps, strict=True) if steps else ((),) * 4
    return Progress(FIRST, hwm, *(array("q", column) for column in columns))


def told(pieces: list[Piece]) -> list[tuple[bool, list[tuple[int, int]]]]:
    return [(piece.replay, [tuple(point) for point in piece.points]) for piece in pieces]


def test_the_mark_is_passed_within_an_interval() -> None:
    found = progress((10, 20, 100, 200), (25, 35, 200, 400), hwm=300).pieces()
    assert told(found) == [
        (True, [(10, 100), (20, 200), (25, 200), (30, 300)]),
        (False, [(30, 300), (35, 400)]),
    ]


def test_a_cursor_that_goes_back_begins_a_new_piece() -> None:
    found = progress((0, 10, 0, 100), (20, 30, 50, 100), (30, 40, 100, 150)).pieces()
    assert told(found) == [
        (False, [(0, 0), (10, 100)]),
        (True, [(20, 50), (30, 100)]),
        (False, [(30, 100), (40, 150)]),
    ]


def test_the_cursor_at_a_moment() -> None:
    one = progress((10, 20, 100, 200), (25, 35, 200, 400))
    assert [one.at(time) for time in (0, 10, 15, 22, 30, 99)] == [100, 100, 150, 200, 300, 400]
    assert progress().at(5) is None
    assert progress().pieces() == progress().pieces(9) == []


def test_an_attempt_that_resumes_replays_up_to_the_mark(history) -> None:
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).ended(12, "preempted")
    history.submit(15, 2, "relaunch").session(15, 16, SECOND, hwm=10)
    history.steps(20, 25, (4, 10), SECOND, steps=6, wait=2).train(25, 30, (10, 15), SECOND)
    first, second = history.ended(30, None, SECOND).job_ended(30).measure().progress
    assert (first.attempt, first.hwm, second.attempt, second.hwm) == (FIRST, 0, SECOND, 10)
    (whole,) = first.pieces()
    assert (whole.points[0], whole.points[-1]) == ((0, 0), (10 * 10**9, 10))
    replay, new = second.pieces()
    # Steps come after the waiting, as in the partition.
    assert (replay.replay, replay.points[0]) == (True, (22 * 10**9, 4))
    assert replay.points[-1] == new.points[0] == (25 * 10**9, 10)
    assert new.points[-1] == (30 * 10**9, 15)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_pieces_go_on_and_replay_what_lies_below_the_mark(lives, seed) -> None:
    for one in measure(lives.any_life(seed)).progress:
        mark = one.hwm
        for piece in one.pieces():
            assert piece.points
            for before, after in pairwise(piece.points):
                assert before.time_ns <= after.time_ns
                assert before.cursor <= after.cursor
            low, high = piece.points[0].cursor, piece.points[-1].cursor
            assert (high <= mark and low < mark) if piece.replay else low >= mark
            mark = max(mark, high)


_MOVES = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9), st.booleans())


@settings(max_examples=500, deadline=None)
@given(st.lists(_MOVES, min_size=1, max_size=60), st.integers(0, 40), st.integers(2, 70))
def test_fewer_intervals_make_the_same_pieces(
    moves: list[tuple[int, int, int, bool]], hwm: int, step: int
) -> None:
    steps, time, cursor = [], 0, 20
    for wait, length, samples, back in moves:
        cursor = cursor // 2 if back else cursor
        steps.append((time + wait, time + wait + length, cursor, cursor + samples))
        time, cursor = time + wait + length, cursor + samples
    one = progress(*steps, hwm=hwm)
    whole, some = one.pieces(), one.pieces(step)
    assert [(p.replay, p.points[0], p.points[-1]) for p in some] == [
        (p.replay, p.points[0], p.points[-1]) for p in whole
    ]
    for few, many in zip(some, whole, strict=True):
        assert set(few.points) <= set(many.points)


_PIECES = st.lists(
    st.builds(
        lambda replay, times: Piece(FIRST, replay, tuple(Point(t, 2 * t) for t in sorted(times))),
        st.booleans(),
        st.lists(st.integers(0, 10**6), min_size=1, max_size=60),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(_PIECES, st.integers(0, 200))
def test_fewer_points_keep_the_ends(pieces: list[Piece], most: int) -> None:
    found = thinned(pieces, most)
    assert len(found) == len(pieces)
    for before, after in zip(pieces, found, strict=True):
        assert after.points[0] == before.points[0]
        assert after.points[-1] == before.points[-1]
        assert sorted(after.points) == list(after.points)
        assert set(after.points) <= set(before.points)
    ends = sum(min(2, len(piece.points)) for piece in pieces)
    assert sum(len(piece.points) for piece in found) <= max(most, ends)
    if sum(len(piece.points) for piece in pieces) <= most:
        assert found == pieces
