"""The second clock: for how long the job held its accelerators."""

from __future__ import annotations

from itertools import groupby

from airflow_ett.metric.attempts import Attempt
from airflow_ett.metric.endings import Outcome
from airflow_ett.metric.phases import Phase
from airflow_ett.metric.timeline import Timeline

_WITHOUT = frozenset({Phase.QUEUE, Phase.RETRY_WAIT, Phase.FAILURE_DETECTION})


def held(timelines: list[Timeline]) -> int:
    """Return the length of the union of all allocations, in ns.

    An allocation lasts over elastic restarts. It begins when the scheduler says so, else with the
    first process; it ends when the scheduler says so, else with the last sign of life. Where
    neither begin is known, it is the attempt's time without queue, detection and retry_wait.
    """
    stretches: list[tuple[int, int]] = []
    if not timelines:
        return 0
    end_ns = timelines[-1].attempt.stop_ns
    for _, members in groupby(timelines, key=lambda timeline: timeline.attempt.id[:2]):
        group = list(members)
        allocation = _allocation([timeline.attempt for timeline in group])
        if allocation is not None:
            stretches.append(allocation)
            continue
        stretches += [
            (span.begin_ns, span.end_ns)
            for timeline in group
            for span in timeline.main
            if span.phase not in _WITHOUT
        ]
    return _union(stretches, timelines[0].attempt.begin_ns, end_ns)


def _allocation(group: list[Attempt]) -> tuple[int, int] | None:
    first, last = group[0], group[-1]
    begins = [first.allocated_ns, first.running_ns, *(attempt.first_ns for attempt in group)]
    begin = min((time for time in begins if time is not None), default=None)
    if begin is None:
        return None
    if last.outcome is Outcome.LIVE:
        return begin, last.stop_ns
    ends = [time for time in (last.released_ns, last.last_ns) if time is not None]
    return begin, max(ends, default=last.detected_ns)


def _union(stretches: list[tuple[int, int]], begin_ns: int, end_ns: int) -> int:
    total, reached = 0, begin_ns
    for begin, end in sorted(stretches):
        begin, end = max(begin, reached), min(end, end_ns)
        if end > begin:
            total += end - begin
            reached = end
    return total
