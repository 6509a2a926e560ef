"""How often to save: what checkpoints cost against what failures lose between them.

``WTT(I) = F I / 2 + (T / I) b``: of T seconds of training with F failures and a save of b blocking
seconds every I seconds, a failure loses half an interval on average. WTT is least at
``I = sqrt(2 b T / F)``. Source: "Optimizing effective training time for Meta's internal
recommendation/ranking workloads", https://pytorch.org/blog, 17 April 2026.

These are estimates: seconds as floating-point numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.plans.sets import Result, measured, total

DAY_S = 86_400.0
_NS = 1_000_000_000
_LEAST, _MOST = 1e-9, 1e12
_MINUTE, _HOUR = 60.0, 3600.0
_ROUND = tuple(
    unit * count
    for unit, counts in (
        (1.0, (1, 2, 5, 10, 20, 30)),
        (_MINUTE, (1, 2, 5, 10, 20, 30)),
        (_HOUR, (1, 2, 4, 8, 12)),
        (DAY_S, (1, 2, 4, 8, 16, 32)),
    )
    for count in counts
)
"""Intervals that people choose; the curve shows those around the optimum."""
_AROUND = 16


class Point(NamedTuple):
    """What one interval costs in ``Costs.time_s``; ``wtt_pct`` is the cost's share of that time."""

    interval_s: float
    unsaved_s: float
    blocking_s: float
    wtt_pct: float


@dataclass(frozen=True, slots=True)
class Costs:
    """A save blocks training for ``blocking_s``; in ``time_s`` of training come ``failures``.

    Raises :class:`ConfigurationError` for what is no such number.
    """

    blocking_s: float
    failures: float
    time_s: float = DAY_S

    def __post_init__(self) -> None:
        _check("blocking", self.blocking_s)
        _check("failures", self.failures)
        _check("time", self.time_s, positive=True)

    def at(self, interval_s: float) -> Point:
        """Return what this interval costs."""
        unsaved = self.failures * interval_s / 2
        blocking = self.time_s / interval_s * self.blocking_s
        return Point(interval_s, unsaved, blocking, 100 * (unsaved + blocking) / self.time_s)


@dataclass(frozen=True, slots=True)
class IntervalPlan:
    """The interval at which the least time is wasted, beside others.

    ``optimal_interval_s`` is None where the cost falls without end and no bound stops it;
    ``wtt_pct`` is the cost at the optimum, in percent of the training time. ``current`` is the cost
    of the interval in use, and ``saving_s`` what the optimum would save of it in ``costs.time_s``;
    both None where it is not known. ``note`` says what the optimum follows from.
    """

    costs: Costs
    optimal_interval_s: float | None
    wtt_pct: float
    note: str
    current: Point | None
    saving_s: float | None
    curve: tuple[Point, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-able data."""
        return {
            **asdict(self.costs),
            "optimal_interval_s": self.optimal_interval_s,
            "wtt_pct": self.wtt_pct,
            "note": self.note,
            "current": self.current._asdict() if self.current else None,
            "saving_s": self.saving_s,
            "curve": [point._asdict() for point in self.curve],
        }


def plan(
    costs: Costs,
    *,
    current_s: float | None = None,
    at_least_s: float | None = None,
    at_most_s: float | None = None,
) -> IntervalPlan:
    """Return the optimal interval within the bounds, and the curve around it.

    Raises :class:`ConfigurationError` for an interval that is not positive and for bounds that
    leave none.
    """
    for name, value in (("current", current_s), ("min", at_least_s), ("max", at_most_s)):
        if value is not None:
            _check(name, value, positive=True)
    low, high = at_least_s or 0.0, at_most_s or math.inf
    if low > high:
        raise ConfigurationError("min", f"{low:g} s is longer than the longest interval, {high:g}")
    optimum, note = _optimum(costs, low, high)
    best = None if optimum in (0.0, math.inf) else costs.at(optimum)
    current = None if current_s is None else costs.at(current_s)
    wtt_pct = best.wtt_pct if best else 0.0
    return IntervalPlan(
        costs=costs,
        optimal_interval_s=best.interval_s if best else None,
        wtt_pct=wtt_pct,
        note=note,
        current=current,
        saving_s=(current.wtt_pct - wtt_pct) * costs.time_s / 100 if current else None,
        curve=_curve(costs, low, high, [point for point in (best, current) if point]),
    )


class Observed(NamedTuple):
    """What jobs have shown: their costs and the interval at which they saved."""

    costs: Costs
    current_s: float


def observe(jobs: Iterable[Result]) -> Observed:
    """Return what these jobs' saves and failures cost: the sums over all of them.

    A save blocks for their mean blocking time (CSBT). Training time is the wall clock less start,
    recoveries and shutdown; divided by the saves (NoS) it is the current interval.
    Raises :class:`ConfigurationError` where no job ever saved or trained.
    """
    jobs = measured(jobs, "LOG")
    saves = total(jobs, "nos")
    training = sum(job["levels_ns"]["effective"] + job["levels_ns"]["steady"] for job in jobs)
    if not saves or not training:
        missing = "checkpoint was saved" if training else "step was trained"
        problem = f"no {missing}, so there is no interval to judge; give numbers instead"
        raise ConfigurationError("LOG", problem)
    blocking = total(jobs, "wtt_ns") - total(jobs, "utt_ns")
    costs = Costs(blocking / saves / _NS, total(jobs, "nof"), training / _NS)
    return Observed(costs, costs.time_s / saves)


def _optimum(costs: Costs, low: float, high: float) -> tuple[float, str]:
    if not costs.failures:
        return high, "no failure: nothing is lost between saves, the longest interval is best"
    if not costs.blocking_s:
        return low, "saves cost nothing: the shortest interval is best"
    free = math.sqrt(2 * costs.blocking_s * costs.time_s / costs.failures)
    bounded = min(max(free, low), high)
    if bounded != free:
        return bounded, f"bounded: the optimum would be {free:.1f} s"
    return free, "sqrt(2 x blocking x time / failures)"


def _curve(costs: Costs, low: float, high: float, marked: list[Point]) -> tuple[Point, ...]:
    """The round intervals around the marked ones and within the bounds, and the marked ones."""
    centre = [point.interval_s for point in marked] or [_ROUND[0], _ROUND[-1]]
    begin, end = max(low, min(centre) / _AROUND), min(high, max(centre) * _AROUND)
    shown = {costs.at(interval) for interval in _ROUND if begin <= interval <= end}
    return tuple(sorted(shown | set(marked)))


def _check(name: str, value: float, *, positive: bool = False) -> None:
    least = _LEAST if positive else 0.0
    if not least <= value <= _MOST:
        raise ConfigurationError(name, f"{value:g} is not a number from {least:g} to {_MOST:g}")
