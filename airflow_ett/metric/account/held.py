"""The second clock: when the job held its accelerators."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_ett.metric.clock.attempts import Attempt
from airflow_ett.metric.clock.endings import Outcome
from airflow_ett.metric.evidence.lanes import MAIN
from airflow_ett.metric.phases import Phase
from airflow_ett.metric.timeline.trace import Stretch, Timeline

_WITHOUT = frozenset({Phase.QUEUE, Phase.RETRY_WAIT, Phase.FAILURE_DETECTION, Phase.SHUTDOWN})


def held(group: Sequence[Timeline]) -> list[Stretch]:
    """Return when one allocation, which lasts over elastic restarts, held its accelerators.

    It begins when the scheduler says so, else with the first process; it ends when the scheduler
    says so, else with the last sign of life. Where neither begin is known, it is the attempts' time
    without queue, detection, retry_wait and shutdown.
    """
    allocation = _allocation([timeline.attempt for timeline in group])
    if allocation is not None:
        return [allocation]
    return [
        (span.begin_ns, span.end_ns)
        for timeline in group
        for span in timeline.spans()
        if span.lane == MAIN and span.phase not in _WITHOUT
    ]


def _allocation(group: list[Attempt]) -> Stretch | None:
    first, last = group[0], group[-1]
    begins = [first.allocated_ns, first.running_ns, *(attempt.first_ns for attempt in group)]
    begin = min((time for time in begins if time is not None), default=None)
    if begin is None:
        return None
    if last.outcome is Outcome.LIVE:
        return begin, last.stop_ns
    ends = [time for time in (last.released_ns, last.last_ns) if time is not None]
    return begin, max(ends, default=last.detected_ns)
