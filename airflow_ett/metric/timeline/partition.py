"""Spans that lie side by side without a gap, packed, with sums at hand up to any moment."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from airflow_ett.metric.result import Booked, Booking

_STRIDE = 64


class Partition:
    """Spans from ``begin_ns`` to ``end_ns``; neighbours under one booking are one span.

    Twelve bytes a span. The sums before every so many spans are kept, so that those up to any
    moment take a search and a short walk.
    """

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = self.end_ns = begin_ns
        self._begins = array("q")
        self._keys = array("I")
        self._names: list[Booking] = []
        self._key_of: dict[Booking, int] = {}
        self._sums: list[int] = []
        self._marks: list[tuple[int, list[int]]] = []
        self._next_mark = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def last_phase(self) -> str | None:
        """The phase of the last span."""
        return self._names[self._keys[-1]].phase if self._keys else None

    def key(self, booking: Booking) -> int:
        """Return the number under which :meth:`book` knows ``booking``."""
        key = self._key_of.get(booking)
        if key is None:
            key = self._key_of[booking] = len(self._names)
            self._names.append(booking)
            self._sums.append(0)
        return key

    def book(self, end_ns: int, key: int) -> None:
        """Book the time from ``self.end_ns`` to ``end_ns``, which is later, under ``key``."""
        keys = self._keys
        if not keys or keys[-1] != key:
            self._turn()
            self._begins.append(self.end_ns)
            keys.append(key)
        self.end_ns = end_ns

    def _turn(self) -> None:
        """Add the span that is complete to the sums, and remember them now and then."""
        if self._keys:
            self._sums[self._keys[-1]] += self.end_ns - self._begins[-1]
        if len(self._keys) == self._next_mark:
            self._marks.append((len(self._keys), self._sums.copy()))
            # No more sums than spans, however many names there are.
            self._next_mark += max(_STRIDE, len(self._names))

    def total(self) -> Booked:
        """Return how much is booked to each."""
        total = Counter(dict(zip(self._names, self._sums, strict=True)))
        if self._keys:
            total[self._names[self._keys[-1]]] += self.end_ns - self._begins[-1]
        return total

    def until(self, time_ns: int) -> Booked:
        """Return how much of the time before ``time_ns`` is booked to each."""
        if time_ns >= self.end_ns:
            return self.total()
        at = bisect_right(self._begins, time_ns) - 1
        if at < 0:
            return Counter()
        first, sums = self._marks[bisect_right(self._marks, at, key=lambda mark: mark[0]) - 1]
        total = Counter(dict(zip(self._names, sums, strict=False)))
        for i in range(first, at):
            total[self._names[self._keys[i]]] += self._begins[i + 1] - self._begins[i]
        total[self._names[self._keys[at]]] += time_ns - self._begins[at]
        return total

    def pieces(self, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """Return begin and end of the spans within ``[begin_ns, end_ns)``, cut to it."""
        first = max(0, bisect_right(self._begins, begin_ns) - 1)
        last = bisect_left(self._begins, end_ns)
        edges = [*self._begins[first + 1 : last], min(end_ns, self.end_ns)]
        begins = [max(begin_ns, self.begin_ns), *edges[:-1]]
        return [(begin, end) for begin, end in zip(begins, edges, strict=True) if begin < end]

    def packed(self, count: int) -> tuple[array[int], array[int], list[str]]:
        """Return begin and key of the first ``count`` spans, and the phase of each key.

        Neighbours of one phase are one span, whatever components they are booked to.
        """
        begins, keys = self._begins[:count], self._keys[:count]
        phases = [name.phase for name in self._names]
        if len({*phases}) < len(phases):
            turns = [i for i in range(count) if not i or phases[keys[i]] != phases[keys[i - 1]]]
            begins = array("q", (begins[i] for i in turns))
            keys = array("I", (keys[i] for i in turns))
        return begins, keys, phases

    def spans(self, count: int, end_ns: int) -> Iterator[tuple[int, int, str]]:
        """Iterate over begin, end and phase of the first ``count`` spans as of ``end_ns``."""
        for i in range(count):
            end = self._begins[i + 1] if i + 1 < count else end_ns
            yield self._begins[i], end, self._names[self._keys[i]].phase
