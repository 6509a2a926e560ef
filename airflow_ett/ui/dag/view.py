"""The Dag tab's content, from stored reports to what the template shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.metric import COMPONENTS, Components
from airflow_ett.ui.charts import Figure
from airflow_ett.ui.dag.figures import run_bars
from airflow_ett.ui.dag.summary import ComponentRow, Summary, component_rows, summarise
from airflow_ett.ui.data import Job, jobs_of, weights

_DAY_NS = 86_400 * 10**9
_ROWS = 12


@dataclass(frozen=True, slots=True)
class Period:
    """A choice of the Period control: the newest ``runs``, or the last ``days``."""

    key: str
    label: str
    runs: int | None = None
    days: int | None = None

    def since(self, now_ns: int) -> int | None:
        """Begin of the period before this one, as far back as a page must read."""
        return now_ns - 2 * self.days * _DAY_NS if self.days else None

    @property
    def limit(self) -> int | None:
        """How many jobs a page must read: the period and the one before it."""
        return 2 * self.runs if self.runs else None

    def split(self, jobs: Sequence[Job], now_ns: int) -> tuple[Sequence[Job], Sequence[Job]]:
        """Return the jobs (oldest first) before this period and within it."""
        if self.days:
            begin = now_ns - self.days * _DAY_NS
            at = sum(job.begin_ns < begin for job in jobs)
        else:
            at = max(0, len(jobs) - (self.runs or 0))
        return jobs[:at], jobs[at:]


PERIODS = (
    Period("30runs", "Last 30 runs", runs=30),
    Period("7days", "Last 7 days", days=7),
    Period("30days", "Last 30 days", days=30),
    Period("90days", "Last 90 days", days=90),
)
"""The Period control's choices; the first is the default."""


def period_of(key: str) -> Period:
    """Return the period with this key, or the default: a link from elsewhere still opens."""
    return next((period for period in PERIODS if period.key == key), PERIODS[0])


@dataclass(frozen=True, slots=True)
class DagView:
    """Everything that the Dag tab shows. ``before`` is None where nothing was measured then.

    ``shown`` are the rows of the runs table, newest first; ``total`` how many there are.
    """

    period: Period
    now: Summary
    before: Summary | None
    components: list[ComponentRow]
    figure: Figure
    shown: list[Job]
    total: int


def dag_view(
    results: Sequence[Mapping[str, Any]],
    *,
    period: Period,
    now_ns: int,
    show_all: bool,
    components: Components = COMPONENTS,
) -> DagView | None:
    """Return the Dag tab's content, or None where the period has no job.

    ``components`` tells the owners to show.
    """
    earlier, within = period.split(jobs_of(results), now_ns)
    if not within:
        return None
    accelerated = weights(within) is not None
    now = summarise(within, accelerated=accelerated)
    before = summarise(earlier, accelerated=accelerated)
    known_before = before if before.ett_pct is not None else None
    newest = list(reversed(within))
    return DagView(
        period=period,
        now=now,
        before=known_before,
        components=component_rows(within, now, known_before, components),
        figure=run_bars(within),
        shown=newest if show_all else newest[:_ROWS],
        total=len(within),
    )
