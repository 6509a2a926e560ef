"""Sums over a Dag's jobs: the headline, the components, the period before. Pure.

Shares and ETT% are weighted by accelerator time (accelerators x wall clock, or held time on that
clock), or by time alone where no job held an accelerator; jobs without ETT% take no part in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_ett.api.summaries import percent
from airflow_ett.ui.data import COMPONENT_LABELS, Job


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Median and 90th percentile of lengths in nanoseconds, interpolated linearly."""

    p50: int
    p90: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Several jobs in one. Percents are 0 to 100; None is unknown.

    ``lost`` and ``held`` are accelerator-nanoseconds, or plain nanoseconds where no job held an
    accelerator (``accelerated`` false); ``released`` are accelerator-nanoseconds that publishing in
    the trainers would have held; ``parts`` is the time on the page's clock by component in
    the same unit, ``lost_parts`` the held time. ``clock_pct`` is the ETT% on the page's clock,
    ``per_job_pct`` and ``mean_ns`` are on it, too.
    """

    jobs: int
    measured: int
    accelerated: bool
    clock_pct: float | None
    ett_pct: float | None
    held_pct: float | None
    per_job_pct: float | None
    paper_pct: float | None
    tts: Quantiles | None
    ttr: Quantiles | None
    unrecovered: int
    recovering: int
    failures_per_job: float
    failures_without_preemptions: float
    failures: int
    lost: int
    held: int
    released: int
    parts: dict[str, int]
    lost_parts: dict[str, int]
    mean_ns: dict[str, int]

    @property
    def residual_points(self) -> float | None:
        """What the paper's formula counts as effective and the partition doesn't, in points."""
        if self.paper_pct is None or self.ett_pct is None:
            return None
        return self.paper_pct - self.ett_pct

    def share_pct(self, component: str) -> float | None:
        """The component's share of the time on the page's clock, 0 to 100."""
        return percent(self.parts[component], sum(self.parts.values()))

    @property
    def largest_loss(self) -> str | None:
        """The component other than ``effective`` with the largest share; None without any time."""
        losses = {name: part for name, part in self.parts.items() if name != "effective"}
        return max(losses, key=lambda name: losses[name]) if sum(self.parts.values()) else None


def summarise(jobs: Sequence[Job], *, accelerated: bool, held: bool = False) -> Summary:
    """Return the sums over ``jobs``, weighted by accelerators if ``accelerated``.

    ``held`` says which clock the page is on.
    """
    known = [job for job in jobs if job.measured]
    weight = [job.accelerators if accelerated else 1 for job in known]
    weighted = list(zip(known, weight, strict=True))
    wall_ns = sum(job.wall_ns * w for job, w in weighted)
    held_ns = sum(job.held_ns * w for job, w in weighted)
    effective_ns = sum(job.effective_ns * w for job, w in weighted)
    recoveries = [recovery for job in known for recovery in job.recoveries]
    recovering = sum(job.recovering for job in known)
    failures = sum(job.nof for job in jobs)
    count = max(1, len(jobs))
    measures = [job.on(held=held) for job in known]
    return Summary(
        jobs=len(jobs),
        measured=len(known),
        accelerated=accelerated,
        clock_pct=percent(effective_ns, held_ns if held else wall_ns),
        ett_pct=percent(effective_ns, wall_ns),
        held_pct=percent(effective_ns, held_ns),
        per_job_pct=_mean([one.pct for one in measures if one.pct is not None]),
        paper_pct=_weighted_paper(weighted),
        tts=quantiles([job.tts_ns for job in known if job.tts_ns is not None]),
        ttr=quantiles([ns for ns, recovered in recoveries if recovered]),
        unrecovered=sum(not recovered for _, recovered in recoveries) - recovering,
        recovering=recovering,
        failures_per_job=failures / count,
        failures_without_preemptions=(failures - sum(job.preempted for job in jobs)) / count,
        failures=failures,
        lost=held_ns - effective_ns,
        held=held_ns,
        released=sum(job.released_ns * job.accelerators for job in jobs),
        parts=_summed([one.parts_ns for one in measures], weight),
        lost_parts=_summed([job.held_components_ns for job in known], weight),
        mean_ns={
            name: ns // max(1, len(known))
            for name, ns in _summed([one.parts_ns for one in measures], [1] * len(known)).items()
        },
    )


def quantiles(values: Sequence[int]) -> Quantiles | None:
    """Return median and 90th percentile, or None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return Quantiles(_quantile(ordered, 50), _quantile(ordered, 90))


def _summed(parts: Sequence[Mapping[str, int]], weights: Sequence[int]) -> dict[str, int]:
    pairs = list(zip(parts, weights, strict=True))
    return {name: sum(part[name] * w for part, w in pairs) for name in COMPONENT_LABELS}


def _quantile(ordered: Sequence[int], percent: int) -> int:
    whole, part = divmod((len(ordered) - 1) * percent, 100)
    above = ordered[min(whole + 1, len(ordered) - 1)]
    return ordered[whole] + (above - ordered[whole]) * part // 100


def _weighted_paper(weighted: Sequence[tuple[Job, int]]) -> float | None:
    pairs = [(job.ett_pct_paper, job.wall_ns * w) for job, w in weighted]
    known = [(percent, weight) for percent, weight in pairs if percent is not None]
    whole = sum(weight for _, weight in known)
    return sum(percent * weight for percent, weight in known) / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
