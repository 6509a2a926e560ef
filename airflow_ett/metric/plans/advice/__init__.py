"""What to fix next: what each known lever would have saved a set of jobs.

A lever shortens phases of attempts, as :mod:`airflow_ett.metric.plans.whatif` has it: the wall
clock shrinks, the effective time stays. ETT% is weighed by accelerators, as where several jobs
stand in one number; by wall clock alone where no job holds any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_ett.metric.phases import COMPONENTS, Components
from airflow_ett.metric.plans.advice.gains import Proposal, Saving, saving, together
from airflow_ett.metric.plans.advice.hows import with_how
from airflow_ett.metric.plans.advice.jobs import NEEDED, Jobs
from airflow_ett.metric.plans.advice.levers import LEVERS
from airflow_ett.metric.plans.sets import Result

__all__ = ["KEYS", "LEAST_POINTS", "NEEDED", "SHOWN", "Advice", "Advised", "advise"]

KEYS = tuple(LEVERS)
"""The keys that an :class:`Advice` may have."""
LEAST_POINTS = 0.1
"""What is worth less is not told."""
SHOWN = 3
"""How many a page shows; :attr:`Advised.together_points` is of these."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to fix. ``points`` are those of ETT%, with this alone.

    ``saved_ns`` is wall clock; ``saved_accelerator_ns`` the part of it in which accelerators were
    held, times their number. ``component`` is where most of it was lost. ``runs`` show it, the
    newest first.
    """

    key: str
    title: str
    component: str
    points: float
    saved_ns: int
    saved_accelerator_ns: int
    evidence: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Advised:
    """All that is worth it, best first, and what the first :data:`SHOWN` give together.

    None where there are not two. Where they shorten the same phases it is less than their sum;
    where they don't it is a little more, for the less wall clock is left, the more a saving counts.
    """

    items: tuple[Advice, ...]
    together_points: float | None


def advise(results: Iterable[Result], components: Components = COMPONENTS) -> Advised:
    """Return what to fix next. Jobs without an ETT% are left out; the order means nothing.

    ``results`` need the keys :data:`NEEDED`.
    """
    jobs = Jobs(results)
    found = []
    for key, lever in LEVERS.items():
        proposal = lever(jobs)
        if proposal is None or not _may_matter(jobs, proposal):
            continue
        gain = saving(jobs, proposal)
        if jobs.points(gain.weighed.total()) >= LEAST_POINTS:
            found.append((_advice(key, proposal, gain, jobs, components), proposal))
    found.sort(key=lambda one: (-one[0].saved_accelerator_ns, -one[0].points, one[0].key))
    best = [proposal for _, proposal in found[:SHOWN]]
    points = jobs.points(together(jobs, best)) if len(best) > 1 else None
    return Advised(tuple(advice for advice, _ in found), points)


def _may_matter(jobs: Jobs, proposal: Proposal) -> bool:
    return jobs.points(sum(jobs.phases[phase] for phase in proposal.phases)) >= LEAST_POINTS


def _advice(
    key: str, proposal: Proposal, found: Saving, jobs: Jobs, components: Components
) -> Advice:
    by_component = dict.fromkeys(components, 0)
    for phase, ns in found.by_phase.items():
        by_component[components.of(phase)] += ns
    title, evidence = with_how(key, proposal.title, proposal.evidence(jobs, found), jobs, found)
    return Advice(
        key=key,
        title=title,
        component=max(by_component, key=lambda name: by_component[name]),
        points=jobs.points(found.weighed.total()),
        saved_ns=found.by_phase.total(),
        saved_accelerator_ns=found.held if jobs.accelerated else 0,
        evidence=evidence,
        runs=found.runs,
    )
