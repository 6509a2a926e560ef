"""Which of a writer's numbers were seen, and which are missing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

_TIME_MS = 10**12
"""A process that numbers its events from the time it began at does so from a number beyond this."""


class Numbering:
    """Numbers from 0 on, kept as stretches without a gap. ``next`` follows the highest one."""

    def __init__(self) -> None:
        self.next = 0
        self._count = 0
        self._begins = [0]
        self._ends = [0]
        self._firsts: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self._ends[bisect_right(self._begins, number) - 1]

    def add(self, number: int) -> None:
        """Take a number that was not seen before."""
        begins, ends = self._begins, self._ends
        self._count += 1
        if number == self.next:
            ends[-1] = self.next = number + 1
            return
        at = bisect_right(begins, number)
        if number == ends[at - 1]:
            ends[at - 1] += 1
            if at < len(begins) and begins[at] == ends[at - 1]:
                ends[at - 1] = ends.pop(at)
                del begins[at]
        elif at < len(begins) and begins[at] == number + 1:
            begins[at] = number
        else:
            begins.insert(at, number)
            ends.insert(at, number + 1)
        self.next = ends[-1]

    def begin(self, number: int) -> None:
        """Take it that a process began with this number: none is missing before one that is a time.

        Processes of one name, in containers that were started again, each begin with another time.
        """
        if number >= _TIME_MS:
            self._firsts.add(number)

    @property
    def missing(self) -> int:
        """How many numbers below the highest were not seen."""
        if not self._firsts:
            return self.next - self._count
        return self.missing_after(-1)

    def missing_after(self, number: int) -> int:
        """Return how many of those lie above ``number``."""
        return sum(max(0, end - max(begin, number + 1)) for begin, end in self._gaps())

    def _gaps(self) -> Iterator[tuple[int, int]]:
        for before, begin in zip(self._ends, self._begins[1:], strict=False):
            if begin not in self._firsts:
                yield before, begin
