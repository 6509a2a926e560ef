"""Which of a writer's numbers were seen."""

from __future__ import annotations

from bisect import bisect_right


class Numbering:
    """Numbers from 0 on, kept as stretches without a gap. ``next`` follows the highest one."""

    def __init__(self) -> None:
        self.next = 0
        self._count = 0
        self._begins = [0]
        self._ends = [0]

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

    @property
    def missing(self) -> int:
        """How many numbers below the highest were not seen."""
        return self.next - self._count

    def missing_after(self, number: int) -> int:
        """Return how many of those lie above ``number``."""
        seen = 0
        for begin, end in zip(reversed(self._begins), reversed(self._ends), strict=True):
            if end <= number + 1:
                break
            seen += end - max(begin, number + 1)
        return max(0, self.next - number - 1) - seen
