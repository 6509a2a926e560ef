"""What became of an attempt's levers, by its trainers' own words."""

from __future__ import annotations

from airflow_ett.events import Event, Kind
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import order, text, whole
from airflow_ett.metric.result import Lever

MOST = 8
"""So many reasons for one outcome of a lever are kept, the last ones."""

KINDS = 64
"""So many levers' outcomes are kept, the first ones: trainers may tell of levers of their own."""


def levers(evidence: Evidence) -> tuple[Lever, ...]:
    """Return what the attempt's levers came to, in order of time.

    Each reason for an outcome stands there once, as it was told last: a long attempt saves its
    cache many times. Of ranks with the same outcome the lowest one counts; what another rank alone
    tells, such as a miss on its host, stands beside it.
    """
    told: dict[tuple[str, str], dict[str | None, Event]] = {}
    ranks: dict[tuple[str, str], int] = {}
    for event in evidence.of(Kind.LEVER):
        lever, outcome = text(event.data, "lever"), text(event.data, "outcome")
        if lever is None or outcome is None:
            continue
        rank, name = event.rank or 0, (lever, outcome)
        if name not in told and len(told) == KINDS:
            continue
        if ranks.setdefault(name, rank) == rank:
            reasons = told.setdefault(name, {})
            reason = text(event.data, "reason")
            reasons.pop(reason, None)
            reasons[reason] = event
    last = [
        (event, *name) for name, reasons in told.items() for event in [*reasons.values()][-MOST:]
    ]
    return tuple(_lever(*one) for one in sorted(last, key=lambda one: order(one[0])))


def _lever(event: Event, lever: str, outcome: str) -> Lever:
    return Lever(
        lever=lever,
        outcome=outcome,
        reason=text(event.data, "reason"),
        duration_ns=whole(event.data, "duration_ns"),
        bytes=whole(event.data, "bytes"),
        rank=event.rank or 0,
    )
