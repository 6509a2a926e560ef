"""Stretches of the job's clock, and what is booked in them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from airflow_ett.metric.result import Booked
from airflow_ett.metric.timeline.trace import Stretch, Timeline


def union(stretches: Iterable[Stretch], begin_ns: int, end_ns: int) -> list[Stretch]:
    """Return the disjoint stretches that together cover the same part of ``[begin_ns, end_ns)``."""
    found: list[Stretch] = []
    for begin, end in sorted(stretches):
        begin, end = max(begin, begin_ns), min(end, end_ns)
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def booked(timeline: Timeline, begin_ns: int, end_ns: int, excluded: Sequence[Stretch]) -> Booked:
    """Return what one attempt booked in a stretch, without the excluded ones."""
    found = timeline.between(begin_ns, end_ns)
    for begin, end in excluded:
        if begin < end_ns and end > begin_ns:
            found = found - timeline.between(max(begin, begin_ns), min(end, end_ns))
    return found


def booked_by_all(
    timelines: Sequence[Timeline], stretches: Iterable[Stretch], excluded: Sequence[Stretch]
) -> Booked:
    """Return what all attempts booked in disjoint stretches, without the excluded ones."""
    total: Booked = Counter()
    for begin, end in stretches:
        for timeline in overlapping(timelines, begin, end):
            total.update(booked(timeline, begin, end, excluded))
    return total


def overlapping(timelines: Sequence[Timeline], begin_ns: int, end_ns: int) -> Iterator[Timeline]:
    """Iterate over the attempts that lie at least in part in ``[begin_ns, end_ns)``."""
    first = bisect_right(timelines, begin_ns, key=lambda timeline: timeline.attempt.stop_ns)
    for timeline in timelines[first:]:
        if timeline.attempt.begin_ns >= end_ns:
            return
        yield timeline
