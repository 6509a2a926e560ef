"""The fleet page's content, from sums to what the template shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from airflow_ett.api.summaries import ett_pct_per_job, weighs
from airflow_ett.metric import Components
from airflow_ett.store.sums import Sums
from airflow_ett.ui.charts import Figure
from airflow_ett.ui.fleet import figures
from airflow_ett.ui.fleet.amounts import added, ett, losses, lost_amount
from airflow_ett.ui.fleet.causes import CauseRow, cause_rows
from airflow_ett.ui.fleet.choice import Choice
from airflow_ett.ui.fleet.dags import ROWS, DagRow, dag_rows, history, ordered, scale_of
from airflow_ett.ui.fleet.headline import Numbers, gains, numbers_of
from airflow_ett.ui.fleet.reads import Found


@dataclass(frozen=True, slots=True)
class DayRow:
    """A day on which a job ended: the numbers behind the charts.

    Amounts are those of :mod:`airflow_ett.ui.fleet.amounts`; ``lost`` counts what was held.
    """

    label: str
    jobs: int
    ett_pct: float | None
    per_job_pct: float | None
    losses: dict[str, int]
    lost: int


@dataclass(frozen=True, slots=True)
class FleetView:
    """Everything that the fleet page shows but the history of each Dag.

    ``before`` is None where nothing was measured then. ``shown`` are the rows of the table of
    Dags, ``total`` how many there are.
    """

    accelerated: bool
    now: Numbers
    before: Numbers | None
    gains: list[tuple[str, float]]
    days: list[DayRow]
    causes: list[CauseRow]
    shown: list[DagRow]
    total: int
    running: int
    trend: Figure
    lost: Figure
    failures: Figure


def fleet_view(found: Found, choice: Choice, components: Components) -> FleetView:
    """Return the fleet page's content; ``components`` tells the owners to show."""
    now, before = added(list(found.now.values())), added(list(found.before.values()))
    accelerated = weighs(now)
    rows = ordered(
        dag_rows(found, components, held=choice.held, accelerated=accelerated), choice.order
    )
    causes = cause_rows(now, before)
    earlier = numbers_of(before, held=choice.held, accelerated=accelerated)
    return FleetView(
        accelerated=accelerated,
        now=numbers_of(now, held=choice.held, accelerated=accelerated),
        before=earlier if before["measured"] else None,
        gains=[] if choice.held else gains(now, before),
        days=[
            _day_row(day, found.days[day], held=choice.held, accelerated=accelerated)
            for day in choice.days
            if day in found.days
        ],
        causes=causes,
        shown=rows if choice.every else rows[:ROWS],
        total=len(rows),
        running=sum(found.running.values()),
        trend=figures.trend(choice.days, found.days, held=choice.held),
        lost=figures.lost_by_day(choice.days, found.days, accelerated=accelerated),
        failures=figures.failures(causes),
    )


@dataclass(frozen=True, slots=True)
class Histories:
    """ETT% by day of each Dag shown, and the least and the largest value of all."""

    by_dag: dict[str, dict[int, float | None]]
    scale: tuple[float, float] | None


def histories_of(found: Mapping[str, Mapping[str, Sums]], choice: Choice) -> Histories:
    """Return the histories of the Dags, by day of the period."""
    by_dag = {
        dag_id: history(days, choice.days, held=choice.held) for dag_id, days in found.items()
    }
    return Histories(by_dag, scale_of(by_dag.values()))


def day_label(day: str) -> str:
    """Return a day (ISO 8601) as it is shown, such as ``Nov 29, 2026``."""
    found = date.fromisoformat(day)
    return f"{found:%b} {found.day}, {found.year}"


def _day_row(day: str, sums: Sums, *, held: bool, accelerated: bool) -> DayRow:
    return DayRow(
        label=day_label(day),
        jobs=sums["jobs"],
        ett_pct=ett(sums, held=held),
        per_job_pct=ett_pct_per_job(sums),
        losses=losses(sums, accelerated=accelerated),
        lost=lost_amount(sums, accelerated=accelerated),
    )
