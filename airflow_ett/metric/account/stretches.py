"""Stretches of the job's clock, and what is booked in them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from airflow_ett.metric.format import apportion
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


def spread(timeline: Timeline, excluded: Sequence[Stretch]) -> list[Stretch]:
    """Return what of the excluded stretches (disjoint, in order) lies in the attempt.

    Where one begins or ends within an interval of many steps, each of the interval's spans loses
    its share of what is excluded there, instead of those that happen to lie at that place.
    """
    attempt = timeline.attempt
    first = bisect_right(excluded, attempt.begin_ns, key=lambda stretch: stretch[1])
    mine = union(excluded[first:], attempt.begin_ns, attempt.stop_ns)
    cut = {timeline.straddling(edge) for stretch in mine for edge in stretch} - {()}
    for spans in cut:
        begin, end = spans[0][0], spans[-1][1]
        lost = sum(min(two, end) - max(one, begin) for one, two in union(mine, begin, end))
        shares = apportion([two - one for one, two in spans], lost)
        inside = [(one, one + share) for (one, _), share in zip(spans, shares, strict=True)]
        outside = union(mine, attempt.begin_ns, begin) + union(mine, end, attempt.stop_ns)
        mine = union(outside + inside, attempt.begin_ns, attempt.stop_ns)
    return mine


def booked(timeline: Timeline, begin_ns: int, end_ns: int, excluded: Iterable[Stretch]) -> Booked:
    """Return what one attempt booked in a stretch, without the excluded ones."""
    found = timeline.between(begin_ns, end_ns)
    for begin, end in excluded:
        if begin < end_ns and end > begin_ns:
            found = found - timeline.between(max(begin, begin_ns), min(end, end_ns))
    return found


def booked_by_all(
    timelines: Sequence[Timeline],
    stretches: Iterable[Stretch],
    excluded: Sequence[Sequence[Stretch]],
) -> Booked:
    """Return what all attempts booked in disjoint stretches.

    ``excluded`` are, by attempt, the stretches to leave out.
    """
    total: Booked = Counter()
    for begin, end in stretches:
        for number in overlapping(timelines, begin, end):
            total.update(booked(timelines[number], begin, end, excluded[number]))
    return total


def overlapping(timelines: Sequence[Timeline], begin_ns: int, end_ns: int) -> Iterator[int]:
    """Iterate over the numbers of the attempts of which a part lies in ``[begin_ns, end_ns)``."""
    first = bisect_right(timelines, begin_ns, key=lambda timeline: timeline.attempt.stop_ns)
    for number in range(first, len(timelines)):
        if timelines[number].attempt.begin_ns >= end_ns:
            return
        yield number
