"""The change of ETT% between two sets of jobs, split into what it comes from.

A set weighs its jobs by wall clock: its ETT% is its effective time over its wall clock, and each
part's loss the part's time over the same. The five parts and the effective time are the whole wall
clock, so the parts' gains are the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_ett.metric.format import apportion
from airflow_ett.metric.plans.sets import Result, measured

PARTS = ("recovery", "shutdown", "checkpoint", "start", "steady")
"""``checkpoint`` is ``checkpoint_save`` in the steady position; ``steady`` the rest of that."""

_PPM = 1_000_000


class Gain(NamedTuple):
    """What one part took of both wall clocks, and gave back, in millionths of them.

    ``share_pct`` is the gain's share of the whole change, negative where the part works against it;
    None without any change.
    """

    part: str
    lost_before_ppm: int
    lost_after_ppm: int
    gain_ppm: int
    share_pct: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """ETT% before and after, in millionths. The parts' ``gain_ppm`` sum to ``change_ppm``, exactly.

    ``before_jobs`` and ``after_jobs`` say of how many jobs.
    """

    before_jobs: int
    after_jobs: int
    before_ppm: int
    after_ppm: int
    parts: tuple[Gain, ...]

    @property
    def change_ppm(self) -> int:
        """The change of ETT%, in millionths."""
        return self.after_ppm - self.before_ppm

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data: ETT% also in percent, the change also in points."""
        return {
            "before": _set(self.before_jobs, self.before_ppm),
            "after": _set(self.after_jobs, self.after_ppm),
            "change_ppm": self.change_ppm,
            "change_points": _percent(self.change_ppm),
            "parts": {gain.part: _part(gain) for gain in self.parts},
        }


def compare(before: Iterable[Result], after: Iterable[Result]) -> Comparison:
    """Return what changed from one set of jobs to another.

    Each set's parts are rounded together to millionths that sum to its wall clock (by largest
    remainder), so that their differences sum, too.
    Raises :class:`ConfigurationError` where one of them holds no job with an ETT%.
    """
    old_jobs, new_jobs = measured(before, "before"), measured(after, "after")
    (old_ett, *old), (new_ett, *new) = _shares(old_jobs), _shares(new_jobs)
    change = new_ett - old_ett
    gains = (
        Gain(part, lost, kept, lost - kept, 100 * (lost - kept) / change if change else None)
        for part, lost, kept in zip(PARTS, old, new, strict=True)
    )
    return Comparison(len(old_jobs), len(new_jobs), old_ett, new_ett, tuple(gains))


def _shares(jobs: list[Result]) -> list[int]:
    """The set's effective time and its parts, in millionths of its wall clock."""
    lost = Counter[str]()
    for job in jobs:
        lost.update(job["levels_ns"])
        lost["checkpoint"] += job["positions_ns"]["steady"].get("checkpoint_save", 0)
    lost["steady"] -= lost["checkpoint"]
    return apportion([lost[part] for part in ("effective", *PARTS)], _PPM)


def _set(jobs: int, ett_ppm: int) -> dict[str, Any]:
    return {"jobs": jobs, "ett_ppm": ett_ppm, "ett_pct": _percent(ett_ppm)}


def _part(gain: Gain) -> dict[str, Any]:
    row = gain._asdict()
    del row["part"]
    return row


def _percent(ppm: int) -> float:
    return ppm / 10_000
