"""The Dag tab's content, from stored reports to what the template shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.metric import COMPONENTS, Components
from airflow_ett.metric.plans.advice import advise
from airflow_ett.ui.charts import Figure
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.dag.components import ComponentRow, component_rows
from airflow_ett.ui.dag.figures import run_bars
from airflow_ett.ui.dag.filters import Filters
from airflow_ett.ui.dag.fixes import Fixes, fixes_of
from airflow_ett.ui.dag.links import File, csv_files, job_href
from airflow_ett.ui.dag.summary import Summary, summarise
from airflow_ett.ui.data import Job, jobs_of, weights

_ROWS = 12


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of the runs table; ``lost`` is in the unit of :attr:`Summary.lost`."""

    job: Job
    href: str
    whole_ns: int
    parts_ns: Mapping[str, int]
    pct: float | None
    lost: int | None


@dataclass(frozen=True, slots=True)
class DagView:
    """Everything that the Dag tab shows. ``before`` is None where nothing was measured then.

    ``runs`` is how many runs the ``total`` jobs of the period belong to; ``rows`` are those of the
    runs table, newest first.
    """

    now: Summary
    before: Summary | None
    components: list[ComponentRow]
    figure: Figure
    fixes: Fixes
    rows: list[RunRow]
    files: list[File]
    runs: int
    total: int


def dag_view(
    dag_id: str,
    results: Sequence[Mapping[str, Any]],
    results_before: Sequence[Mapping[str, Any]],
    filters: Filters,
    *,
    clock: Clock,
    one_task: bool = True,
    components: Components = COMPONENTS,
) -> DagView:
    """Return the Dag tab's content for the jobs of a period, one or more, and of the one before.

    ``one_task`` says whether the Dag trains in one task alone; ``components`` tells the owners to
    show.
    """
    jobs = jobs_of(results)
    accelerated, held = weights(jobs) is not None, filters.held
    now = summarise(jobs, accelerated=accelerated, held=held)
    earlier = summarise(jobs_of(results_before), accelerated=accelerated, held=held)
    before = earlier if earlier.ett_pct is not None else None
    links = [job_href(dag_id, job, one_task=one_task) for job in jobs]
    newest_first = list(reversed(list(zip(jobs, links, strict=True))))
    by_run = {job.run_id: href for job, href in reversed(newest_first)}
    shown = newest_first if filters.every else newest_first[:_ROWS]
    return DagView(
        now=now,
        before=before,
        components=component_rows(jobs, now, before, components, held=held),
        figure=run_bars(jobs, links, clock, held=held),
        fixes=fixes_of(advise(results, components), by_run, components, accelerated=accelerated),
        rows=[_row(job, href, accelerated=accelerated, held=held) for job, href in shown],
        files=csv_files(dag_id, filters.task, jobs),
        runs=len(by_run),
        total=len(jobs),
    )


def _row(job: Job, href: str, *, accelerated: bool, held: bool) -> RunRow:
    measure = job.on(held=held)
    weight = job.accelerators if accelerated else 1
    lost = None if job.lost_ns is None else job.lost_ns * weight
    return RunRow(job, href, measure.whole_ns, measure.parts_ns, measure.pct, lost)
