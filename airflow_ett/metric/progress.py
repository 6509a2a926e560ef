"""Where the cursor stood over time: what was trained first, and what once more."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice, pairwise
from operator import gt
from typing import NamedTuple

from airflow_ett.events import AttemptId


class Point(NamedTuple):
    """The cursor at a moment."""

    time_ns: int
    cursor: int


class Piece(NamedTuple):
    """A stretch of an attempt in which the cursor goes on and never back.

    All of it is ``replay``, below the high-water mark, or none of it is.
    """

    attempt: AttemptId
    replay: bool
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt's main rank came, and when.

    In ``[begins_ns[i], ends_ns[i])`` it stepped from ``cursors_from[i]`` to ``cursors_to[i]``; an
    interval's steps lie behind its waiting, as in the partition. ``hwm`` is the high-water mark at
    the attempt's begin.
    """

    attempt: AttemptId
    hwm: int
    begins_ns: array[int]
    ends_ns: array[int]
    cursors_from: array[int]
    cursors_to: array[int]

    def at(self, time_ns: int) -> int | None:
        """Return the cursor at a moment, None where the attempt made no step."""
        number = bisect_right(self.begins_ns, time_ns) - 1
        if number < 0:
            return self.cursors_from[0] if self.cursors_from else None
        begin, end = self.begins_ns[number], self.ends_ns[number]
        low, high = self.cursors_from[number], self.cursors_to[number]
        return high if time_ns >= end else _between(low, high, time_ns - begin, end - begin)

    def __len__(self) -> int:
        return len(self.begins_ns)

    def pieces(self, step: int = 1) -> list[Piece]:
        """Return all of it, cut where the cursor goes back and where it passes the mark.

        Of the intervals between these only each ``step``-th is told.
        """
        found: list[Piece] = []
        points: list[Point] = []
        replays = False
        for replay, begin, end in self._parts(step):
            if not points or replay != replays or begin.cursor < points[-1].cursor:
                if points:
                    found.append(Piece(self.attempt, replays, tuple(points)))
                goes_on = bool(points) and begin.cursor == points[-1].cursor
                points, replays = points[-1:] if goes_on else [], replay
            for point in (begin, end):
                if not points or point != points[-1]:
                    points.append(point)
        if points:
            found.append(Piece(self.attempt, replays, tuple(points)))
        return found

    def _parts(self, step: int) -> Iterator[tuple[bool, Point, Point]]:
        """Yield begin and end of each interval's steps; of one that passes the mark, two parts."""
        hwm, now = self.hwm, 0
        for at in self._chosen(step):
            begin_ns, end_ns = self.begins_ns[at], self.ends_ns[at]
            low, high = self.cursors_from[at], self.cursors_to[at]
            # Neither clocks that disagree nor a damaged interval may turn a line back.
            high = max(low, high)
            begin = Point(max(begin_ns, now), low)
            end = Point(max(end_ns, begin.time_ns), high)
            now = end.time_ns
            if low >= hwm or high <= hwm:
                yield low < hwm, begin, end
            else:
                length = end.time_ns - begin.time_ns
                passed = begin.time_ns + _between(0, length, hwm - low, high - low)
                yield True, begin, Point(passed, hwm)
                yield False, Point(passed, hwm), end
            hwm = max(hwm, high)

    def _chosen(self, step: int) -> Iterable[int]:
        """Return each ``step``-th interval, and those at which a piece begins or ends."""
        count, tos = len(self), self.cursors_to
        if step <= 1 or not count:
            return range(count)
        chosen, hwm = set(range(0, count, step)), self.hwm
        goes_back = map(gt, tos, islice(self.cursors_from, 1, None))
        for first, end in pairwise([0, *compress(range(1, count), goes_back), count]):
            passes = bisect_right(tos, hwm, first, end)
            beyond = bisect_left(self.cursors_from, hwm, first, end)
            near = (first, passes - 1, passes, beyond - 1, beyond, end - 1)
            chosen.update(at for at in near if first <= at < end)
            hwm = max(hwm, tos[end - 1])
        return sorted(chosen)


def thinned(pieces: Sequence[Piece], most: int) -> list[Piece]:
    """Return the pieces with ``most`` points in all; the ends of each are kept, however many."""
    inner = sum(max(0, len(piece.points) - 2) for piece in pieces)
    room = most - sum(min(2, len(piece.points)) for piece in pieces)
    if inner <= room:
        return list(pieces)
    return [piece._replace(points=_every(piece.points, inner, max(0, room))) for piece in pieces]


def _every(points: tuple[Point, ...], inner: int, room: int) -> tuple[Point, ...]:
    """Return the two ends, and of the points between as many as ``room`` of ``inner`` gives."""
    if len(points) <= 2:
        return points
    count = (len(points) - 2) * room // inner
    kept = (points[1 + (len(points) - 2) * (2 * i + 1) // (2 * count)] for i in range(count))
    return (points[0], *kept, points[-1])


def _between(first: int, last: int, part: int, whole: int) -> int:
    return first + (last - first) * part // whole
