"""One job's events in, its numbers out. A pure function: no clock, no file, no order."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_ett.events import Event
from airflow_ett.metric.fold import Fold
from airflow_ett.metric.phases import COMPONENTS, Components
from airflow_ett.metric.result import JobMetric
from airflow_ett.metric.timeline.trace import Stretch


def measure(
    events: Iterable[Event],
    *,
    now_ns: int | None = None,
    last_sign_ns: int | None = None,
    exclude: Iterable[Stretch] = (),
    components: Components = COMPONENTS,
) -> JobMetric:
    """Return the numbers of the job whose events these are: a :class:`Fold` in one go.

    Whatever the log lacks or contradicts is told in ``quality_reasons``; nothing raises.
    """
    fold = Fold(components=components)
    fold.add(events)
    return fold.measure(now_ns=now_ns, last_sign_ns=last_sign_ns, exclude=exclude)
