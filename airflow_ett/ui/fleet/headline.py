"""The fleet page's headline: a period beside the one before. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from airflow_ett.api.summaries import ett_pct_per_job, mean, percent, spent
from airflow_ett.store.sums import Sums
from airflow_ett.ui.data import COMPONENT_LABELS
from airflow_ett.ui.fleet.amounts import (
    ett,
    held_amount,
    lost_amount,
    not_held,
    per_100_attempts,
    released_amount,
    unwished,
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """A period in five cells. Percents are 0 to 100, lengths nanoseconds; None is unknown.

    ``other_pct`` is ETT% over the clock that is not chosen; amounts are those of
    :mod:`airflow_ett.ui.fleet.amounts`.
    """

    jobs: int
    unmeasured: int
    ett_pct: float | None
    other_pct: float | None
    per_job_pct: float | None
    lost: int | None
    held: int
    not_held: int
    released: int
    failures: float | None
    unwished: float | None
    tts_ns: int | None


def numbers_of(sums: Sums, *, held: bool, accelerated: bool) -> Numbers:
    """Return what the headline says of a period."""
    attempts = sums["attempts"]
    known = bool(sums["measured"])
    return Numbers(
        jobs=sums["jobs"],
        unmeasured=sums["jobs"] - sums["measured"],
        ett_pct=ett(sums, held=held),
        other_pct=ett(sums, held=not held),
        per_job_pct=ett_pct_per_job(sums),
        lost=lost_amount(sums, accelerated=accelerated) if known else None,
        held=held_amount(sums, accelerated=accelerated),
        not_held=not_held(sums, accelerated=accelerated),
        released=released_amount(sums),
        failures=per_100_attempts(sums.failures.total(), attempts),
        unwished=per_100_attempts(unwished(sums), attempts),
        tts_ns=mean(sums["tts_ns"], sums["measured"]),
    )


def gains(now: Sums, before: Sums) -> list[tuple[str, float]]:
    """Return the change of ETT% from submission, in points, as the sum of components' gains.

    Largest first; rounded to tenths together, so that they add up to the rounded change. Those
    that are 0 then are left out. Empty where one of the two is unknown.
    """
    shares, earlier = _shares(now), _shares(before)
    if not shares or not earlier:
        return []
    exact = {n: 10 * (earlier[n] - shares[n]) for n in shares if n != "effective"}
    tenths = {name: math.floor(value) for name, value in exact.items()}
    # As the change itself is shown.
    change = round(10 * float(f"{shares['effective'] - earlier['effective']:.1f}"))
    short = change - sum(tenths.values())
    for name in sorted(exact, key=lambda n: tenths[n] - exact[n])[:short]:
        tenths[name] += 1
    found = [(name, count / 10) for name, count in tenths.items() if count]
    return sorted(found, key=lambda part: -abs(part[1]))


def _shares(sums: Sums) -> dict[str, float]:
    parts = spent(sums)
    shares = {name: percent(parts[name], sum(parts.values())) for name in COMPONENT_LABELS}
    return {name: share for name, share in shares.items() if share is not None}
