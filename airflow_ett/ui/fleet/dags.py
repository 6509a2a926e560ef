"""The table of Dags, ranked by what they lost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.api.summaries import largest_loss, mean, percent, spent
from airflow_ett.metric import Components
from airflow_ett.store.sums import Sums
from airflow_ett.ui.data import COMPONENT_LABELS
from airflow_ett.ui.fleet.amounts import LOSSES, ett, lost_amount
from airflow_ett.ui.fleet.reads import Found

ROWS = 14


@dataclass(frozen=True, slots=True)
class DagRow:
    """A Dag. Percents are 0 to 100, lengths nanoseconds; None is unknown.

    ``rank`` counts from 1 by ``lost``, whatever the order shown. ``change`` is in points;
    ``is_new`` says that the Dag had no job in the period before. ``losses`` is the time from
    submission that was not effective, by component; ``largest`` took most of it.
    """

    rank: int
    dag_id: str
    lost: int | None
    share_pct: float | None
    ett_pct: float | None
    change: float | None
    is_new: bool
    losses: dict[str, int]
    largest: str | None
    largest_pct: float | None
    owner: str | None
    failures_per_job: float | None
    tts_ns: int | None
    running: int


def dag_rows(
    found: Found, components: Components, *, held: bool, accelerated: bool
) -> list[DagRow]:
    """Return the Dags that ended a job in the period or run one now, ranked."""
    lost = {d: lost_amount(sums, accelerated=accelerated) for d, sums in found.now.items()}
    whole = sum(lost.values())
    held_ns = {d: lost_amount(sums, accelerated=False) for d, sums in found.now.items()}
    ids = sorted(
        found.now.keys() | found.running.keys(),
        key=lambda d: (-lost.get(d, 0), -held_ns.get(d, 0), d),
    )
    return [
        _row(rank, dag_id, found, lost.get(dag_id), whole, components, held=held)
        for rank, dag_id in enumerate(ids, 1)
    ]


def ordered(rows: list[DagRow], order: str) -> list[DagRow]:
    """Return the rows in another order; what a row does not know comes last."""
    key = _KEYS[order.removeprefix("-")]
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return sorted(known, key=key, reverse=order.startswith("-")) + unknown


_KEYS: dict[str, Callable[[DagRow], Any]] = {
    "lost": lambda row: row.lost,
    "dag": lambda row: row.dag_id,
    "ett": lambda row: row.ett_pct,
    "change": lambda row: row.change,
    "loss": lambda row: row.largest_pct,
    "failures": lambda row: row.failures_per_job,
    "tts": lambda row: row.tts_ns,
    "running": lambda row: row.running,
}


def history(days: Mapping[str, Sums], order: list[str], *, held: bool) -> dict[int, float | None]:
    """Return a Dag's ETT% on the days on which a job ended, by their place; None is unknown."""
    return {place: ett(days[day], held=held) for place, day in enumerate(order) if day in days}


def scale_of(histories: Iterable[Mapping[int, float | None]]) -> tuple[float, float] | None:
    """Return the least and the largest of all values, so that rows can be compared."""
    known = [value for one in histories for value in one.values() if value is not None]
    return (min(known), max(known)) if known else None


def _row(
    rank: int,
    dag_id: str,
    found: Found,
    lost: int | None,
    whole: int,
    components: Components,
    *,
    held: bool,
) -> DagRow:
    sums = found.now.get(dag_id, Sums())
    parts = spent(sums)
    losses = {name: parts[name] for name in LOSSES}
    largest = largest_loss(sums)
    now, before = ett(sums, held=held), ett(found.before.get(dag_id, Sums()), held=held)
    known = bool(sums["measured"])
    return DagRow(
        rank=rank,
        dag_id=dag_id,
        lost=lost if known else None,
        share_pct=percent(lost, whole) if lost is not None and known else None,
        ett_pct=now,
        change=None if now is None or before is None else now - before,
        is_new=dag_id in found.now and dag_id not in found.before,
        losses=losses,
        largest=largest and COMPONENT_LABELS[largest],
        largest_pct=percent(losses[largest], sum(losses.values())) if largest else None,
        owner=components[largest].owner if largest else None,
        failures_per_job=sums.failures.total() / sums["jobs"] if sums["jobs"] else None,
        tts_ns=mean(sums["tts_ns"], sums["measured"]),
        running=found.running.get(dag_id, 0),
    )
