"""From a job's spans to the bars that are drawn: as many as a chart can take. Pure.

A job of weeks has a million spans, nearly all of them narrower than a pixel. Neighbours that narrow
become one bar a phase, as long as the phase was in them together and in the order in which the
phases came: the sums stay exact, and nothing moves by more than a pixel or two.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

MOST = 2_000
"""More spans than this are merged."""

_WIDTH = 2_400
"""Half pixels of a wide chart."""

_FOREVER = 2**63

Stretch = tuple[int, int]
"""Begin and end, in nanoseconds."""


class Bar(NamedTuple):
    """A phase in a row, from ``begin_ns`` to ``end_ns``.

    It stands for ``spans`` spans somewhere in ``[first_ns, last_ns)``; of one alone both are the
    same. Rows count from 0, the first attempt's.
    """

    row: int
    phase: str
    begin_ns: int
    end_ns: int
    spans: int
    first_ns: int
    last_ns: int


class Row(NamedTuple):
    """Spans side by side in one row, packed as in :class:`airflow_ett.metric.result.Lane`."""

    number: int
    edges: array[int]
    keys: array[int]
    phases: tuple[str, ...]


def merged(
    rows: Sequence[Row], whole: Stretch, details: Sequence[Stretch] = (), most: int = MOST
) -> list[Bar]:
    """Return the bars of the rows, ``most`` of them or fewer if merging can do it.

    ``details`` are the parts of the ``whole`` that a reader zooms to: less is merged in them.
    """
    factor = int(sum(len(row.keys) for row in rows) > most)
    while True:
        scale = _Scale(whole, details, factor)
        runs = [(row, run) for row in rows for run in _runs(row, scale)]
        # Neighbours differ, so that a run of them is two bars at least.
        count = sum(min(2, end - first) for _, (first, end) in runs)
        if count <= most or factor > _WIDTH:
            found = [one for row, run in runs for one in _bars(row, *run)]
            count = len(found)
            if count <= most or factor > _WIDTH:
                return found
        factor *= max(2, count // most)


class _Scale:
    """Below which length neighbours are merged: it depends on where they lie; factor 0: never."""

    def __init__(self, whole: Stretch, details: Sequence[Stretch], factor: int) -> None:
        self._coarse = _narrow(whole, factor)
        fine = [(*detail, min(_narrow(detail, factor), self._coarse)) for detail in details]
        edges = {edge for detail in details for edge in detail}
        self._edges = sorted(edges | {0, _FOREVER})
        self._leasts = list(_leasts(self._edges, fine, self._coarse))
        self._since = self._until = 0
        self._least = self._coarse

    def reach(self, time_ns: int) -> int:
        """Return up to where spans that begin at a moment are merged; it is asked in order."""
        if not self._since <= time_ns < self._until:
            number = bisect_right(self._edges, time_ns)
            self._since, self._until = self._edges[number - 1 : number + 1]
            self._least = self._leasts[number - 1]
        return min(time_ns + self._least, self._until)


def _leasts(
    edges: Sequence[int], fine: Iterable[tuple[int, int, int]], coarse: int
) -> Iterator[int]:
    """Yield the least length from each edge on: of the details that lie there the shortest one."""
    coming = sorted(fine, reverse=True)
    here: list[tuple[int, int]] = []
    for edge in edges:
        while coming and coming[-1][0] <= edge:
            _, end, least = coming.pop()
            heappush(here, (least, end))
        while here and here[0][1] <= edge:
            heappop(here)
        yield min(coarse, here[0][0]) if here else coarse


def _narrow(stretch: Stretch, factor: int) -> int:
    return (stretch[1] - stretch[0]) * factor // _WIDTH


def _runs(row: Row, scale: _Scale) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of the spans that are merged, one alone where it is wide."""
    edges, count, at = row.edges, len(row.keys), 0
    while at < count:
        end = bisect_right(edges, scale.reach(edges[at]), at + 1) - 1
        yield at, max(end, at + 1)
        at = max(end, at + 1)


def _bars(row: Row, first: int, end: int) -> Iterator[Bar]:
    """Yield a bar for each phase of the spans ``[first, end)``, side by side."""
    sums: dict[int, list[int]] = {}
    edges = row.edges[first : end + 1]
    for key, begin_ns, end_ns in zip(row.keys[first:end], edges, edges[1:], strict=False):
        known = sums.get(key)
        if known is None:
            sums[key] = [end_ns - begin_ns, 1, begin_ns, end_ns]
        else:
            known[0] += end_ns - begin_ns
            known[1] += 1
            known[3] = end_ns
    at_ns = edges[0]
    for key, (length, spans, first_ns, last_ns) in sums.items():
        yield Bar(row.number, row.phases[key], at_ns, at_ns + length, spans, first_ns, last_ns)
        at_ns += length


def lumped(bars: Iterable[Bar], whole: Stretch, most: int) -> list[Bar]:
    """Return ``most`` of bars that need not touch, or fewer, if joining those at hand can do it."""
    found, factor = list(bars), 1
    while len(found) > most and factor <= _WIDTH:
        width = max(1, _narrow(whole, factor))
        near: dict[tuple[int, str, int], Bar] = {}
        for one in found:
            place = (one.row, one.phase, one.begin_ns // width)
            known = near.get(place)
            near[place] = one if known is None else _joined(known, one)
        found, factor = list(near.values()), 2 * factor
    return found


def stacked(bars: Iterable[Bar], most: int) -> list[tuple[Bar, int]]:
    """Return bars with how deep each lies, from 0, so that those of a row at once are all seen.

    What finds no room above lies ``most - 1`` deep, whatever is there.
    """
    found = []
    ends: dict[int, list[int]] = {}
    for one in sorted(bars, key=lambda bar: bar.begin_ns):
        row = ends.setdefault(one.row, [0] * most)
        free = (depth for depth, end_ns in enumerate(row) if end_ns <= one.begin_ns)
        depth = next(free, most - 1)
        row[depth] = max(row[depth], one.end_ns)
        found.append((one, depth))
    return found


def _joined(one: Bar, other: Bar) -> Bar:
    """Return both as one, as long as they are together."""
    return one._replace(
        end_ns=one.end_ns + other.end_ns - other.begin_ns,
        spans=one.spans + other.spans,
        last_ns=max(one.last_ns, other.last_ns),
    )
