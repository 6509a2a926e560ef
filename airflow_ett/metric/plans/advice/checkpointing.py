"""How often to save, and what a save keeps the training waiting for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import mean
from typing import NamedTuple

from airflow_ett.metric import format as show
from airflow_ett.metric.plans.advice import words
from airflow_ett.metric.plans.advice.gains import Proposal, Saving
from airflow_ett.metric.plans.advice.jobs import Jobs, Piece, task_of
from airflow_ett.metric.plans.interval import IntervalPlan, observe, plan
from airflow_ett.metric.plans.sets import Result, total

LEAST_S, LEAST_SAVES, MOST_S = 30.0, 20.0, 3600.0
"""The bounds within which a trainer chooses its interval by itself."""

_NS = 1_000_000_000
_REPLAY, _SAVE = "replay", "checkpoint_save"
_COPY = Fraction(1, 4)
"""What of a save is assumed to keep the training waiting when the rest is done beside it."""


class _Better(NamedTuple):
    """Another interval for a task's jobs: ``phase`` gets shorter by ``gain_ns``, all told."""

    jobs: Sequence[Result]
    plan: IntervalPlan
    best_s: float
    current_s: float
    phase: str
    gain_ns: int


def checkpoint_interval(jobs: Jobs) -> Proposal | None:
    """Return the task that gains most by another interval, None where no task does."""
    weight = {job["job"]: w for job, w in zip(jobs.results, jobs.weights, strict=True)}
    found = [better for task in jobs.by_task() if (better := _better(task))]
    if not found:
        return None
    best = max(found, key=lambda b: b.gain_ns * mean(weight[job["job"]] for job in b.jobs))
    task = task_of(best.jobs[0])
    lost = sum(job["phases_ns"].get(best.phase, 0) for job in best.jobs)

    def cuts(piece: Piece) -> Mapping[str, int]:
        had = piece.phases.get(best.phase, 0)
        theirs = had and task_of(piece.job) == task
        return {best.phase: had * best.gain_ns // lost} if theirs else {}

    def evidence(_: Jobs, found: Saving) -> str:
        failures = show.counted(total(best.jobs, "nof"), "failure")
        repeated = show.duration(sum(job["phases_ns"].get(_REPLAY, 0) for job in best.jobs))
        blocking = show.duration(round(best.plan.costs.blocking_s * _NS))
        return (
            f"{failures} had {repeated} of training repeated; a save blocks for {blocking}. What "
            f"both waste together is least at {_seconds(best.best_s)}."
        )

    title = f"Save every {_seconds(best.best_s)} instead of {_seconds(best.current_s)}"
    if len(jobs.by_task()) > 1:
        title += f" in {task[1]}"
    return Proposal(title, (best.phase,), cuts, evidence, by_job=True)


def background_saves(jobs: Jobs) -> Proposal | None:
    """Return what is saved where the training waits for a save's copy alone.

    Only the saves between the steps count, and only of jobs whose checkpoints show that the
    training waited for their commit: a last save must be waited for.
    """
    shares = {
        job["job"]: (1 - _COPY) * Fraction(steady, job["phases_ns"][_SAVE])
        for job in jobs.results
        if (steady := job["positions_ns"]["steady"].get(_SAVE, 0)) and _waits(job)
    }
    if not shares:
        return None

    def cuts(piece: Piece) -> Mapping[str, int]:
        share = shares.get(piece.job["job"], Fraction(0))
        return {_SAVE: int(share * piece.phases.get(_SAVE, 0))}

    def evidence(jobs: Jobs, found: Saving) -> str:
        waiting = [job for job in jobs.results if job["job"] in shares]
        saved = [job["positions_ns"]["steady"][_SAVE] for job in waiting]
        runs = words.of_runs(len(found.runs), jobs)
        return (
            f"In {runs} the training waited for its saves to be written, {words.typical(saved)} a "
            "job at the median. A quarter of it is assumed to remain, for the copy."
        )

    return Proposal("Write checkpoints beside the training", (_SAVE,), cuts, evidence, by_job=True)


def _better(jobs: Sequence[Result]) -> _Better | None:
    """Return what another interval gains: as the plan expects, but no more than was lost."""
    trained = sum(job["levels_ns"]["effective"] + job["levels_ns"]["steady"] for job in jobs)
    if not (total(jobs, "nof") and trained >= total(jobs, "nos") > 0):
        return None
    costs, current_s = observe(jobs)
    least_s = max(LEAST_S, LEAST_SAVES * costs.blocking_s)
    most_s = max(MOST_S, least_s)
    found = plan(costs, current_s=current_s, at_least_s=least_s, at_most_s=most_s)
    best_s = found.optimal_interval_s
    if best_s is None or found.saving_s is None:
        return None
    ratio = best_s / current_s
    replay = sum(job["phases_ns"].get(_REPLAY, 0) for job in jobs)
    blocking = total(jobs, "wtt_ns") - total(jobs, "utt_ns")
    phase = _REPLAY if ratio < 1 else _SAVE
    lost = sum(job["phases_ns"].get(phase, 0) for job in jobs)
    seen = replay * (1 - ratio) + blocking * (1 - 1 / ratio)
    gain = min(int(min(found.saving_s * _NS, seen)), lost)
    return _Better(jobs, found, best_s, current_s, phase, gain) if gain > 0 else None


def _waits(job: Result) -> bool:
    """Say whether the training waited until its saves were committed."""
    known = [c for c in job["checkpoints"] if c["saved_ns"] and c["committed_ns"]]
    if job["nos"] and not known:
        return False
    return all(one["committed_ns"] <= one["saved_ns"] for one in known)


def _seconds(seconds: float) -> str:
    return show.duration(round(seconds * _NS))
