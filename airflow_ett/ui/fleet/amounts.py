"""What the page says of sums: ETT% by the clock chosen, lost time, rates. Pure.

An amount is accelerator-nanoseconds, or plain nanoseconds where no job of the fleet held an
accelerator.
"""

from __future__ import annotations

from airflow_ett.api.summaries import ett_pct, ett_pct_held
from airflow_ett.events import Cause
from airflow_ett.store.sums import SPENT, WEIGHTED, Sums
from airflow_ett.ui.data import COMPONENT_LABELS

LOSSES = tuple(name for name in COMPONENT_LABELS if name != "effective")
"""The components that are a loss, in stack order."""

_MS = 1_000_000


def ett(sums: Sums, *, held: bool) -> float | None:
    """Return the weighted ETT% over the time held, or from submission."""
    return ett_pct_held(sums) if held else ett_pct(sums)


def held_amount(sums: Sums, *, accelerated: bool) -> int:
    """Return how much the jobs with an ETT% held."""
    return sums["held_weighted_ms"] * _MS if accelerated else sums["measured_held_ns"]


def lost_amount(sums: Sums, *, accelerated: bool) -> int:
    """Return how much of what was held did not train on new data."""
    return held_amount(sums, accelerated=accelerated) - _spent(sums, "effective", accelerated)


def losses(sums: Sums, *, accelerated: bool) -> dict[str, int]:
    """Return the time from submission that was not effective, by component in stack order.

    It is what was lost while held and what passed while nothing was.
    """
    return {name: _spent(sums, name, accelerated) for name in LOSSES}


def not_held(sums: Sums, *, accelerated: bool) -> int:
    """Return how much of the losses passed while nothing was held."""
    whole = sum(losses(sums, accelerated=accelerated).values())
    # Accelerator-time is kept in whole milliseconds of each component.
    return max(0, whole - lost_amount(sums, accelerated=accelerated))


def released_amount(sums: Sums) -> int:
    """Return the accelerator-nanoseconds that publishing in the trainers would have held."""
    return sums["released_weighted_ms"] * _MS


def per_100_attempts(failures: int, attempts: int) -> float | None:
    """Return a failure rate; None without an attempt."""
    return 100 * failures / attempts if attempts else None


def unwished(sums: Sums) -> int:
    """Return the failures that were no preemption."""
    return sums.failures.total() - sums.failures[Cause.PREEMPTED]


def added(parts: list[Sums]) -> Sums:
    """Return the sum of sums."""
    whole = Sums()
    for part in parts:
        whole.add(part)
    return whole


def _spent(sums: Sums, component: str, accelerated: bool) -> int:
    if accelerated:
        return sums[WEIGHTED[component]] * _MS
    return sums[SPENT[component]]
