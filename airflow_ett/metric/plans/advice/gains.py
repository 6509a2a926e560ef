"""What a proposal saves, alone and with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_ett.metric.plans.advice.jobs import Jobs, Piece
from airflow_ett.metric.plans.whatif import NOT_HELD, Overlap

Shown = tuple[Piece, int]
"""An attempt or a job that shows what to change, and what that would save of it, in ns."""


@dataclass(slots=True)
class Saving:
    """Sums over all jobs by phase, in ns and weighed as :attr:`Jobs.wall` is."""

    by_phase: Counter[str] = field(default_factory=Counter)
    weighed: Counter[str] = field(default_factory=Counter)
    shown: list[Shown] = field(default_factory=list)

    @property
    def held(self) -> int:
        """What of ``weighed`` was saved while accelerators were held."""
        return sum(ns for phase, ns in self.weighed.items() if phase not in NOT_HELD)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that show it, the newest first."""
        return tuple(dict.fromkeys(piece.job["run_id"] for piece, _ in reversed(self.shown)))


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to change, and how to say it.

    ``cuts`` tells what it alone takes off which phase of an attempt, in ns; only ``phases`` become
    shorter. ``by_job`` says that this is a share, the same in all attempts of a job, so that it may
    be asked about the job as a whole. ``overlap`` is set where phases are to run at the same time.
    """

    title: str
    phases: tuple[str, ...]
    cuts: Callable[[Piece], Mapping[str, int]]
    evidence: Callable[[Jobs, Saving], str]
    by_job: bool = False
    overlap: Overlap | None = None


def saving(jobs: Jobs, proposal: Proposal) -> Saving:
    """Return what the proposal alone would have saved these jobs."""
    found = Saving()
    by_phase, weighed = found.by_phase, found.weighed
    for piece in jobs.whole if proposal.by_job else jobs.pieces:
        saved = 0
        for phase, ns in proposal.cuts(piece).items():
            by_phase[phase] += ns
            weighed[phase] += ns * piece.weight
            saved += ns
        if saved:
            found.shown.append((piece, saved))
    return found


def together(jobs: Jobs, proposals: Sequence[Proposal]) -> int:
    """Return what several proposals save at once, weighed.

    Of a phase that several shorten each takes its share of what the others leave; phases that run
    at the same time do so as they are left. So they save at least what the best of them does alone,
    and at most the sum.
    """
    cuts = [proposal.cuts for proposal in proposals if not proposal.overlap]
    overlaps = [(proposal.overlap, proposal.cuts) for proposal in proposals if proposal.overlap]
    return sum(
        piece.weight
        * _saved(
            piece.phases,
            [cut(piece) for cut in cuts],
            [overlap for overlap, alone in overlaps if alone(piece)],
        )
        for piece in jobs.pieces
    )


def _saved(
    phases: Mapping[str, int], cuts: Sequence[Mapping[str, int]], overlaps: Sequence[Overlap]
) -> int:
    saved: dict[str, int] = {}
    for one in cuts:
        for phase, ns in one.items():
            saved[phase] = _both(phases[phase], saved[phase], ns) if phase in saved else ns
    if overlaps:
        left = {phase: ns - saved.get(phase, 0) for phase, ns in phases.items()}
        for overlap in overlaps:
            for phase, ns in overlap.saves(left).items():
                saved[phase] = saved.get(phase, 0) + ns
    return sum(saved.values())


def _both(length: int, one: int, other: int) -> int:
    """Return what two cuts take off ``length``, each its share of what the other leaves."""
    return one + other - -(-one * other // length) if length else 0
