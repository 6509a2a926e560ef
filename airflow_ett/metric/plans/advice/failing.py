"""Failures that a team can end, and trainings that stand still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from airflow_ett.events import Cause
from airflow_ett.metric import format as show
from airflow_ett.metric.plans.advice import words
from airflow_ett.metric.plans.advice.gains import Proposal, Saving
from airflow_ett.metric.plans.advice.jobs import Jobs, Piece
from airflow_ett.metric.plans.advice.simple import SECOND, length, shortened
from airflow_ett.metric.plans.sets import Result

_RAISES, _FULL = Cause.APPLICATION.value, Cause.OUT_OF_MEMORY.value
_FIXABLE = {
    _RAISES: ("Fix the errors that the training raises", "came from errors that it raised"),
    _FULL: ("Make the training fit into memory", "came from a lack of memory"),
}
_PATIENCE_NS = 60 * SECOND
"""How long a training stands still before it is ended, and has ended."""


def failures(jobs: Jobs) -> Proposal | None:
    """Return what is saved without the cause that cost most, of those that a team can end.

    All recoveries after it go, as their share of the job's recoveries in each phase.
    """
    cost = Counter[str]()
    for job, weight in zip(jobs.results, jobs.weights, strict=True):
        for recovery in job["ttr"]:
            if recovery["cause"] in _FIXABLE:
                cost[recovery["cause"]] += recovery["ns"] * weight
    if not cost:
        return None
    cause = max(sorted(cost), key=lambda name: cost[name])
    shares = {job["job"]: _without(job, cause) for job in jobs.results}
    title, kind = _FIXABLE[cause]

    def cuts(piece: Piece) -> Mapping[str, int]:
        had = piece.phases
        return {
            phase: had[phase] * part // whole
            for phase, part, whole in shares[piece.job["job"]]
            if phase in had
        }

    def evidence(jobs: Jobs, found: Saving) -> str:
        these = [r["ns"] for job in jobs.results for r in job["ttr"] if r["cause"] == cause]
        every = show.counted(sum(job["nof"] for job in jobs.results), "failure")
        runs = words.of_runs(len(found.runs), jobs)
        whole = show.duration(sum(these))
        return f"{len(these):,} of {every} {kind}, in {runs}. The recoveries took {whole}."

    phases = {share.phase for several in shares.values() for share in several}
    return Proposal(title, tuple(sorted(phases)), cuts, evidence, by_job=True)


def stalls(jobs: Jobs) -> Proposal | None:
    """Return what is saved where a training that stands still is ended and recovers."""
    known = [r["ns"] for job in jobs.results for r in job["ttr"] if r["recovered"]]
    known = known or [job["tts_ns"] for job in jobs.results]
    if not known:
        return None
    recovery = round(median(known))
    phases = jobs.like("stalled")
    cuts = shortened(phases, keeps_ns=_PATIENCE_NS + recovery)

    def evidence(jobs: Jobs, found: Saving) -> str:
        attempts = show.counted(len(found.shown), "attempt")
        runs = words.of_runs(len(found.runs), jobs)
        each = words.typical(length(piece, phases) for piece, _ in found.shown)
        cost = f"{show.duration(_PATIENCE_NS)} and a recovery of {show.duration(recovery)}"
        return f"{attempts} in {runs} stood still, {each} at the median. To end one takes {cost}."

    return Proposal("End a training that stands still", phases, cuts, evidence)


class _Share(NamedTuple):
    """``part`` of ``whole`` of a phase, in each attempt of a job."""

    phase: str
    part: int
    whole: int


def _without(job: Result, cause: str) -> list[_Share]:
    """Return what goes off each phase of a job's attempts without its failures of this cause."""
    every = sum(recovery["ns"] for recovery in job["ttr"])
    gone = sum(recovery["ns"] for recovery in job["ttr"] if recovery["cause"] == cause)
    if not gone:
        return []
    recovery = job["positions_ns"]["recovery"]
    return [_Share(p, gone * ns, every * job["phases_ns"][p]) for p, ns in recovery.items() if ns]
