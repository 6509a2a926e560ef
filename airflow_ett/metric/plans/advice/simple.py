"""Levers that shorten one phase in every attempt alike, or run two at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from airflow_ett.metric import format as show
from airflow_ett.metric.plans.advice import words
from airflow_ett.metric.plans.advice.gains import Proposal, Saving
from airflow_ett.metric.plans.advice.jobs import Jobs, Piece
from airflow_ett.metric.plans.whatif import Overlap

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Shorten:
    """Take ``share`` off a phase, of what is longer than ``keeps_ns``.

    ``evidence`` may name ``runs``, ``attempts``, ``median`` (of the phase in these; in jobs, where
    nothing is kept), ``accelerators``, ``share`` (of all jobs' wall clock) and ``keeps``.
    """

    phase: str
    title: str
    evidence: str
    share: Fraction = Fraction(1)
    keeps_ns: int = 0

    def __call__(self, jobs: Jobs) -> Proposal:
        """Return the proposal for these jobs."""
        phases = jobs.like(self.phase)
        cuts = shortened(phases, self.share, self.keeps_ns)

        def evidence(jobs: Jobs, found: Saving) -> str:
            return self.evidence.format(
                runs=words.of_runs(len(found.runs), jobs),
                attempts=show.counted(len(found.shown), "attempt"),
                median=words.typical(length(piece, phases) for piece, _ in found.shown),
                accelerators=words.accelerators(found),
                share=show.percent(100 * sum(jobs.phases[p] for p in phases) / jobs.wall),
                keeps=show.duration(self.keeps_ns),
            )

        return Proposal(self.title, phases, cuts, evidence, by_job=not self.keeps_ns)


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Run phases at the same time that came in turn; ``what`` says what the attempts did.

    Attempts in which ``lever`` worked did so at the same time already.
    """

    lever: str
    phases: tuple[str, str]
    title: str
    what: str

    def __call__(self, jobs: Jobs) -> Proposal:
        """Return the proposal for these jobs."""
        overlap = Overlap(self.phases)

        def cuts(piece: Piece) -> Mapping[str, int]:
            return {} if self.lever in piece.used else overlap.saves(piece.phases)

        def evidence(jobs: Jobs, found: Saving) -> str:
            attempts = show.counted(len(found.shown), "attempt")
            runs = words.of_runs(len(found.runs), jobs)
            shorter = words.typical(ns for _, ns in found.shown)
            return (
                f"{attempts} in {runs} {self.what} in turn. At once, the shorter of both is saved, "
                f"{shorter} at the median."
            )

        return Proposal(self.title, self.phases, cuts, evidence, overlap=overlap)


def shortened(
    phases: Sequence[str], share: Fraction = Fraction(1), keeps_ns: int = 0
) -> Callable[[Piece], Mapping[str, int]]:
    """Return the cuts that take ``share`` off what of the phases is longer than ``keeps_ns``."""
    part, whole = share.as_integer_ratio()

    def cuts(piece: Piece) -> Mapping[str, int]:
        had = piece.phases
        return {
            phase: (had[phase] - keeps_ns) * part // whole
            for phase in phases
            if phase in had and had[phase] > keeps_ns
        }

    return cuts


def length(piece: Piece, phases: Sequence[str]) -> int:
    """Return how long these phases lasted."""
    return sum(piece.phases.get(phase, 0) for phase in phases)
