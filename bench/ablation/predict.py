"""What the metric expects of a row's levers, from the runs of the row before it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import mean
from typing import Any

from airflow_ett.examples.dlrm.data import AT_ONCE
from airflow_ett.metric.plans.advice import LEAST_POINTS
from airflow_ett.metric.plans.advice.gains import Proposal, saving, together
from airflow_ett.metric.plans.advice.jobs import Jobs, Piece
from airflow_ett.metric.plans.advice.levers import LEVERS
from airflow_ett.metric.plans.advice.simple import Shorten
from airflow_ett.metric.plans.interval import Observed, observe, plan

Result = Mapping[str, Any]

_NS = 1_000_000_000
_SAVES = 20.0
"""A tuned interval is at least so many times the blocking, as where a trainer finds its own."""
_STARTS = (
    *("trainer_init", "preproc_creation", "init_plugins", "train_module_creation"),
    *("first_batch", "compile", "compile_cache_load"),
)
_COPY = Fraction(1, 4)
"""What of a save is expected to block when the rest is written beside the training."""

_ADVICE: Mapping[str, Callable[[Jobs], Proposal | None]] = {
    "compile_cache": LEVERS["compile_cache"],
    "fast_batch": LEVERS["fast_batch"],
    "parallel_init": LEVERS["parallel_init"],
    "background_saves": LEVERS["background_saves"],
    "immediate_retry": Shorten("retry_wait", "Start the next attempt at once", ""),
    "standalone_publish": LEVERS["publish"],
    "parcels": Shorten(
        "data_wait", "Hand batches over many at a time", "", 1 - Fraction(1, AT_ONCE)
    ),
}
"""The metric's own levers, but two. That of the retry keeps ten seconds of a wait, which here is
all. That of waiting for data takes half of it, whatever is done; a parcel is one wait for many."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Points of ETT% that levers were expected to bring, and did bring, from one row to the next.

    ``silent`` are the levers among them that the metric says nothing of, or of which it expects
    less than it tells at all.
    """

    before: str
    after: str
    levers: tuple[str, ...]
    silent: tuple[str, ...]
    predicted: float
    realised: float

    @property
    def off(self) -> float:
        """By how many points the prediction was wrong."""
        return abs(self.predicted - self.realised)


def tuned_interval(results: Sequence[Result], *, to_background: bool) -> float:
    """Return how often to save, in seconds, as the metric plans it from what these runs cost.

    ``to_background``: they waited for their saves, and the next ones will not.
    """
    costs = _observed(results, to_background=to_background).costs
    best = plan(costs, at_least_s=max(1.0, _SAVES * costs.blocking_s)).optimal_interval_s
    if best is None:
        raise ValueError("these runs had no failure: no interval is best")
    return float(round(best, 1))


def predict(
    before: tuple[str, Sequence[Result]],
    after: tuple[str, Sequence[Result]],
    levers: Sequence[str],
    every_s: float,
) -> Prediction:
    """Compare what ``levers`` were expected to bring to one row's runs with the next row's runs.

    ``every_s`` is the interval at which that saves.
    """
    jobs = Jobs(before[1])
    proposals: dict[str, Proposal] = {}
    for lever in levers:
        propose = _ADVICE.get(lever)
        found = propose(jobs) if propose else None
        if lever == "tuned_interval":
            found = _interval(jobs, every_s, to_background="background_saves" in levers)
        elif lever == "earlier_job":
            found = _earlier_job(jobs)
        if found and abs(jobs.points(saving(jobs, found).weighed.total())) >= LEAST_POINTS:
            proposals[lever] = found
    return Prediction(
        before=before[0],
        after=after[0],
        levers=tuple(levers),
        silent=tuple(lever for lever in levers if lever not in proposals),
        predicted=jobs.points(together(jobs, list(proposals.values()))),
        realised=pooled_ett(after[1]) - pooled_ett(before[1]),
    )


def pooled_ett(results: Sequence[Result]) -> float:
    """Return the ETT% of runs as one: by wall clock, as the metric weighs several jobs."""
    jobs = Jobs(results)
    return float(100 * jobs.effective / jobs.wall)


def _interval(jobs: Jobs, every_s: float, *, to_background: bool) -> Proposal:
    """Return what saving every ``every_s`` takes off what was repeated and off the blocking.

    What was wasted is known; what will be is what the metric's plan expects of that interval.
    """
    costs = _observed(jobs.results, to_background=to_background).costs
    expected = costs.at(every_s)
    gains = {
        "replay": _lost(jobs, "replay") - int(expected.unsaved_s * _NS),
        "checkpoint_save": int((_blocking_s(jobs, costs) - expected.blocking_s) * _NS),
    }

    def cuts(piece: Piece) -> Mapping[str, int]:
        return {
            phase: piece.phases[phase] * gain // _lost(jobs, phase)
            for phase, gain in gains.items()
            if piece.phases.get(phase)
        }

    return Proposal("Save as often as wastes least", tuple(gains), cuts, lambda *_: "")


def _earlier_job(jobs: Jobs) -> Proposal | None:
    """Return what is saved where first attempts start as later ones do: they find as much.

    The metric has no such advice: it asks what attempts find of earlier ones that there were.
    """
    firsts = {min(piece.name for piece in jobs.pieces if piece.job is job) for job in jobs.results}
    later = [piece for piece in jobs.pieces if piece.name not in firsts]
    if not later:
        return None
    typical = {phase: round(mean(p.phases.get(phase, 0) for p in later)) for phase in _STARTS}

    def cuts(piece: Piece) -> Mapping[str, int]:
        if piece.name not in firsts:
            return {}
        changes = {phase: piece.phases.get(phase, 0) - typical[phase] for phase in _STARTS}
        return {phase: ns for phase, ns in changes.items() if ns}

    return Proposal("Find what an earlier job kept", _STARTS, cuts, lambda *_: "")


def _observed(results: Sequence[Result], *, to_background: bool) -> Observed:
    seen = observe(results)
    if not to_background:
        return seen
    return seen._replace(costs=replace(seen.costs, blocking_s=seen.costs.blocking_s * float(_COPY)))


def _lost(jobs: Jobs, phase: str) -> int:
    return sum(job["phases_ns"].get(phase, 0) for job in jobs.results)


def _blocking_s(jobs: Jobs, costs: Any) -> float:
    return float(costs.blocking_s * sum(job["nos"] for job in jobs.results))
