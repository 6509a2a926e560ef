"""The intervals of one rank, packed: eleven integers each, in the order of their begins.

A job of weeks has hundreds of thousands of intervals, and one that does not coalesce its steps has
millions: 88 bytes each instead of an event's kilobyte.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise, takewhile
from operator import add, itemgetter, lt
from typing import NamedTuple

from airflow_ett.events import Event
from airflow_ett.metric.evidence.fields import FOREVER, MOST, whole

_NUMBERS = itemgetter(
    *("from", "to", "cursor_from", "cursor_to", "steps", "step_ns", "wait_ns", "other_ns")
)
_INTEGERS = {int}
_FRAGMENT, _TRIMMED = 1, 2
_WIDTH, _SEQ = 11, 8


class Row(NamedTuple):
    """An interval event: steps from one cursor to another, coalesced.

    What is neither step nor wait time is ``loop_other``. ``flags`` tells a fragment (the part of a
    step before a phase that began inside it) and a row whose parts did not fit and were trimmed.
    """

    begin_ns: int
    end_ns: int
    cursor_from: int
    cursor_to: int
    steps: int
    step_ns: int
    wait_ns: int
    flags: int
    seq: int
    writer: int
    time_ns: int

    @property
    def fragment(self) -> bool:
        """Whether it is part of a step that the next row ends."""
        return bool(self.flags & _FRAGMENT)

    @property
    def trimmed(self) -> bool:
        """Whether its parts did not sum to its length."""
        return bool(self.flags & _TRIMMED)


class Run(NamedTuple):
    """Rows, by column, of which each goes on where the one before ended, stepping all the time."""

    begins_ns: array[int]
    ends_ns: array[int]
    cursors_from: array[int]
    cursors_to: array[int]
    step_ns: array[int]


def read_row(event: Event, writer: int) -> tuple[int, ...] | None:
    """Return the fields of a :class:`Row`, or None where the event makes no interval."""
    data = event.data
    try:
        begin, end, low, high, steps, step, wait, other = numbers = _NUMBERS(data)
        told = set(map(type, numbers)) == _INTEGERS and min(numbers) >= 0 and max(numbers) <= MOST
    except KeyError:
        told = False
    if not told or begin + wait + step + other != end:
        return _trim(event, writer)
    flags = _FRAGMENT if data.get("fragment") is True else 0
    return begin, end, low, high, steps, step, wait, flags, event.seq, writer, event.time_ns


def _trim(event: Event, writer: int) -> tuple[int, ...] | None:
    data = event.data
    names = ("from", "to", "cursor_from", "cursor_to")
    values = [value for name in names if (value := whole(data, name)) is not None]
    if len(values) < len(names) or values[1] < values[0]:
        return None
    begin, end, low, high = values
    parts = [whole(data, name) or 0 for name in ("wait_ns", "step_ns", "other_ns")]
    wait = min(parts[0], end - begin)
    step = min(parts[1], end - begin - wait)
    flags = _FRAGMENT if data.get("fragment") is True else 0
    flags |= _TRIMMED if sum(parts) != end - begin else 0
    steps = whole(data, "steps") or 0
    return begin, end, low, high, steps, step, wait, flags, event.seq, writer, event.time_ns


class Rows:
    """The rows of one rank.

    ``stable`` counts those in front that nothing has moved since a reader set it; ``wait_ns`` sums
    the waiting for data;
    ``earliest_ns`` and ``latest_ns`` are the first and the last moment that any of them tells of.
    """

    def __init__(self) -> None:
        self._cells = array("q")
        self._last: tuple[int, ...] = ()
        self._ordered = self._ascending = True
        self._places: dict[tuple[int, int], int] | None = None
        self.stable = 0
        self.trimmed = 0
        self.wait_ns = 0
        self.earliest_ns = FOREVER
        self.latest_ns = -1

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH

    def row(self, at: int) -> Row:
        """Return row ``at``."""
        return Row(*self._cells[at * _WIDTH : (at + 1) * _WIDTH])

    def begin_ns(self, at: int) -> int:
        """Return the begin of row ``at``, :data:`FOREVER` if there is none."""
        return self._cells[at * _WIDTH] if at < len(self) else FOREVER

    def before(self, time_ns: int) -> int:
        """Return how many rows begin before ``time_ns``."""
        return bisect_left(range(len(self)), time_ns, key=self.begin_ns)

    def between(self, first: int, end: int) -> Iterator[tuple[int, ...]]:
        """Iterate over the fields of the rows ``[first, end)``."""
        cells = iter(self._cells[first * _WIDTH : end * _WIDTH])
        return zip(*[cells] * _WIDTH, strict=True)

    def run(self, first: int, end: int) -> Run | None:
        """Return the rows ``[first, end)`` if they are a run, without looking at each by itself."""
        begins, ends, lows, highs, steps, step, _, flags = (
            self._cells[first * _WIDTH + i : end * _WIDTH : _WIDTH] for i in range(8)
        )
        joined = ends[:-1] == begins[1:] and highs[:-1] == lows[1:]
        stepping = all(steps) and not any(flags) and all(map(lt, lows, highs))
        if not joined or not stepping or sum(step) != ends[-1] - begins[0]:
            return None
        return Run(begins, ends, lows, highs, step)

    def stepping(self, count: int) -> tuple[array[int], array[int], array[int], array[int]]:
        """Return begin and end of the stepping in the first rows, and the cursors there."""
        begins, lows, highs, steps, waits = (
            self._cells[i : count * _WIDTH : _WIDTH] for i in (0, 2, 3, 5, 6)
        )
        begins = array("q", map(add, begins, waits))
        return begins, array("q", map(add, begins, steps)), lows, highs

    def append(self, row: tuple[int, ...]) -> None:
        """Take one more row; :meth:`arrange` brings it to its place."""
        last = self._last
        if last:
            if row < last:
                self._ordered = False
            if row[_SEQ] <= last[_SEQ] or row[9] != last[9]:
                self._ascending = False
        self._last = row
        if self._places is not None:
            self._places[row[9], row[_SEQ]] = len(self)
        self._cells.extend(row)
        self.wait_ns += row[6]
        self._widen(row)

    def arrange(self) -> None:
        """Sort the rows, if any came out of order."""
        if self._ordered:
            return
        before = [*self.between(0, len(self))]
        rows = sorted(before)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, rows, strict=True))
        self.stable = min(self.stable, sum(1 for _ in same))
        self._cells = array("q", (cell for row in rows for cell in row))
        self._last = rows[-1]
        self._places = None
        self._ordered = True
        self._ascending = all(
            one[_SEQ] < two[_SEQ] and one[9] == two[9] for one, two in pairwise(rows)
        )

    def find(self, writer: int, seq: int) -> int | None:
        """Return which row the event ``seq`` of ``writer`` became, if any."""
        count = len(self)
        if self._ascending:
            at = bisect_left(range(count), seq, key=lambda i: self._cells[i * _WIDTH + _SEQ])
            return at if at < count and self.row(at)[8:10] == (seq, writer) else None
        if self._places is None:
            rows = enumerate(self.between(0, count))
            self._places = {(row[9], row[_SEQ]): at for at, row in rows}
        return self._places.get((writer, seq))

    def last_seq(self, writer: int) -> int:
        """Return the highest number among the writer's rows, -1 if it has none."""
        rows = self.between(0, len(self))
        return max((row[_SEQ] for row in rows if row[9] == writer), default=-1)

    def remove(self, at: int) -> None:
        """Take row ``at`` out."""
        self._cut(at)
        self._scan()

    def replace(self, at: int, row: tuple[int, ...]) -> None:
        """Put ``row`` in place of row ``at``: an open interval grows so with each look at it."""
        old = self._cut(at)
        self.append(row)
        first, last = min(row[0], row[10]), max(row[1], row[10])
        if first > min(old.begin_ns, old.time_ns) or last < max(old.end_ns, old.time_ns):
            self._scan()

    def _cut(self, at: int) -> Row:
        removed = self.row(at)
        del self._cells[at * _WIDTH : (at + 1) * _WIDTH]
        self._places = None
        self._last = self.row(len(self) - 1) if self._cells else ()
        self.stable = min(self.stable, at)
        self.trimmed -= removed.trimmed
        self.wait_ns -= removed.wait_ns
        return removed

    def _scan(self) -> None:
        """Find the extent anew."""
        rows = [*self.between(0, len(self))]
        self.earliest_ns = min((min(row[0], row[10]) for row in rows), default=FOREVER)
        self.latest_ns = max((max(row[1], row[10]) for row in rows), default=-1)

    def _widen(self, row: tuple[int, ...]) -> None:
        begin, end, time = row[0], row[1], row[10]
        if begin < self.earliest_ns or time < self.earliest_ns:
            self.earliest_ns = min(begin, time, self.earliest_ns)
        if end > self.latest_ns or time > self.latest_ns:
            self.latest_ns = max(end, time, self.latest_ns)
        if row[7] & _TRIMMED:
            self.trimmed += 1
