"""What shorter phases would buy: the wall clock shrinks, the effective time stays.

A saving counts in each attempt that has the phase, so one on the path to the first step is worth
``(1 + NoF)`` times itself, and never more than the phase lasted. Phases that run at the same time
take as long as the longest of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.phases import COMPONENTS, Phase
from airflow_ett.metric.plans.sets import Result, measured, total

_FIXED = frozenset({Phase.TRAIN, Phase.UNATTRIBUTED})
NOT_HELD = frozenset({Phase.QUEUE, Phase.RETRY_WAIT, Phase.FAILURE_DETECTION})
"""Phases in which a job holds no accelerators."""


@dataclass(frozen=True, slots=True)
class Reduce:
    """Take ``ns`` and ``share`` (0 to 1) of its length off a phase, in each attempt.

    Raises :class:`ConfigurationError` for less than nothing or more than all.
    """

    phase: str
    ns: int = 0
    share: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.ns < 0 or not 0 <= self.share <= 1:
            raise ConfigurationError(self.phase, "is cut by a time, or by 0% to 100%")

    def __str__(self) -> str:
        cuts = [f"{float(100 * self.share):g}%"] if self.share else []
        cuts += [f"{self.ns / 1e9:g} s"] if self.ns or not cuts else []
        return f"{self.phase} less {' and '.join(cuts)}"

    @property
    def phases(self) -> tuple[str, ...]:
        """The phase, as the only one that changes."""
        return (self.phase,)

    def saves(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Return what it saves of which phase of an attempt with phases of these lengths."""
        length = lengths.get(self.phase, 0)
        share = length * self.share.numerator // self.share.denominator
        return {self.phase: min(length, self.ns + share)}


@dataclass(frozen=True, slots=True)
class Overlap:
    """Run phases at the same time instead of in turn; all but the longest are saved."""

    phases: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.phases)) < 2:
            raise ConfigurationError(str(self), "at least two phases must overlap")

    def __str__(self) -> str:
        return f"{', '.join(self.phases)} at the same time"

    def saves(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Return what it saves of which phase of an attempt with phases of these lengths."""
        ordered = sorted([(lengths.get(phase, 0), phase) for phase in self.phases])
        return {phase: length for length, phase in ordered[:-1]}


Change = Reduce | Overlap


class Gain(NamedTuple):
    """What one change saves: wall clock, accelerator-time held, and the ETT% with it alone."""

    change: str
    saved_ns: int
    saved_accelerator_ns: int
    ett_pct: float | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The jobs as they were, and as they would be with all changes.

    ``saved_ns`` is wall clock; ``saved_accelerator_ns`` is the part of it in which accelerators
    were held, times their number. Both are the sums of those of ``changes``, in which overlaps save
    what reductions leave.
    """

    jobs: int
    wall_ns: int
    effective_ns: int
    ett_pct_before: float | None
    ett_pct_after: float | None
    saved_ns: int
    saved_accelerator_ns: int
    changes: tuple[Gain, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {**asdict(self), "changes": [gain._asdict() for gain in self.changes]}


def what_if(results: Iterable[Result], changes: Sequence[Change]) -> WhatIf:
    """Return what ``changes`` would have saved these jobs.

    The order of the changes is without meaning: reductions are measured on the phases as they
    were, overlaps on what the reductions leave.
    Raises :class:`ConfigurationError` where no job has an ETT%, and for a phase that no job has,
    that cannot shrink (``train``, ``unattributed``), or that is reduced, or overlaps, twice.
    """
    jobs = measured(results, "LOG")
    _check(jobs, changes)
    ordered = sorted(changes, key=lambda change: isinstance(change, Overlap))
    wall_ns, effective_ns = total(jobs, "wall_ns"), total(jobs, "effective_ns")
    saved, held = _savings(jobs, ordered)

    def ett_pct(saved_ns: int) -> float | None:
        left = wall_ns - saved_ns
        return 100 * effective_ns / left if left else None

    return WhatIf(
        jobs=len(jobs),
        wall_ns=wall_ns,
        effective_ns=effective_ns,
        ett_pct_before=ett_pct(0),
        ett_pct_after=ett_pct(saved.total()),
        saved_ns=saved.total(),
        saved_accelerator_ns=held.total(),
        changes=tuple(
            Gain(str(change), saved[change], held[change], ett_pct(saved[change]))
            for change in ordered
        ),
    )


def halves(results: Iterable[Result]) -> list[Change]:
    """Return the halving of each phase that these jobs have and that can shrink."""
    phases = {phase for result in results for phase in result["phases_ns"]}
    return [Reduce(phase, share=Fraction(1, 2)) for phase in sorted(phases - _FIXED)]


def _savings(
    jobs: Iterable[Result], changes: Sequence[Change]
) -> tuple[Counter[Change], Counter[Change]]:
    """Return what each change saves: of the wall clock, and of accelerator-time held."""
    saved: Counter[Change] = Counter()
    held: Counter[Change] = Counter()
    for job in jobs:
        for attempt in job["attempts"]:
            left = Counter(attempt["phases_ns"])
            for change in changes:
                parts = change.saves(left)
                left.subtract(parts)
                saved[change] += sum(parts.values())
                occupied = (ns for phase, ns in parts.items() if phase not in NOT_HELD)
                held[change] += job["accelerators"] * sum(occupied)
    return saved, held


def _check(jobs: Iterable[Result], changes: Iterable[Change]) -> None:
    had = {phase for job in jobs for phase in job["phases_ns"]}
    used: set[tuple[type[Change], str]] = set()
    for change in changes:
        for phase in change.phases:
            if phase in _FIXED:
                problem = "can't be reduced: it is the training itself, or time without evidence"
                raise ConfigurationError(phase, problem)
            if phase not in had and not COMPONENTS.knows(phase):
                names = ", ".join(sorted(had - _FIXED))
                raise ConfigurationError(phase, f"no job has this phase; there are {names}")
            if (type(change), phase) in used:
                raise ConfigurationError(phase, "changes twice in the same way; say it once")
            used.add((type(change), phase))
