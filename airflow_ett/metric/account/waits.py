"""Why an attempt waited, by its scheduler's own words."""

from __future__ import annotations

from collections import Counter

from airflow_ett.events import Kind
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import text


def waits(evidence: Evidence, end_ns: int) -> dict[str, int]:
    """Return for how many nanoseconds each reason was the newest word, no later than ``end_ns``.

    A scheduler tells one of what waits alone, and each change of it is logged.
    """
    told = sorted(evidence.of(Kind.SCHEDULER_STATE), key=lambda event: event.time_ns)
    ends = [*(event.time_ns for event in told[1:]), end_ns]
    total: Counter[str] = Counter()
    for event, until_ns in zip(told, ends, strict=False):
        if reason := text(event.data, "reason"):
            total[reason] += max(0, min(until_ns, end_ns) - event.time_ns)
    return dict(total)
