"""Sums over a Dag's jobs: the headline, the components, the period before. Pure.

Shares and ETT% are weighted by accelerator time (accelerators x wall clock), or by wall clock alone
where no job held an accelerator; jobs without ETT% take no part in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_ett.metric import COMPONENTS, Components
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
    accelerator (``accelerated`` false); ``parts`` is the wall clock by component in the same unit.
    """

    jobs: int
    measured: int
    accelerated: bool
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
    parts: dict[str, int]
    mean_ns: dict[str, int]

    @property
    def residual_points(self) -> float | None:
        """What the paper's formula counts as effective and the partition doesn't, in points."""
        if self.paper_pct is None or self.ett_pct is None:
            return None
        return self.paper_pct - self.ett_pct

    def share_pct(self, component: str) -> float | None:
        """The component's share of the wall clock, 0 to 100."""
        return _percent(self.parts[component], sum(self.parts.values()))


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """One row of the components table.

    ``change`` is in points against the period before; ``good`` says whether it is for the better,
    None below 0.1 points. ``history`` is its share per job, oldest first, None without ETT%.
    """

    name: str
    owner: str
    share_pct: float | None
    change: float | None
    good: bool | None
    mean_ns: int | None
    history: tuple[float | None, ...]


def summarise(jobs: Sequence[Job], *, accelerated: bool) -> Summary:
    """Return the sums over ``jobs``, weighted by accelerators if ``accelerated``."""
    known = [job for job in jobs if job.measured]
    weight = [job.accelerators if accelerated else 1 for job in known]
    weighted = list(zip(known, weight, strict=True))
    wall = sum(job.wall_ns * w for job, w in weighted)
    held = sum(job.held_ns * w for job, w in weighted)
    effective = sum(job.effective_ns * w for job, w in weighted)
    recoveries = [recovery for job in known for recovery in job.recoveries]
    recovering = sum(job.recovering for job in known)
    failures = sum(job.nof for job in jobs)
    count = max(1, len(jobs))
    return Summary(
        jobs=len(jobs),
        measured=len(known),
        accelerated=accelerated,
        ett_pct=_percent(effective, wall),
        held_pct=_percent(effective, held),
        per_job_pct=_mean([job.ett_pct for job in known if job.ett_pct is not None]),
        paper_pct=_weighted_paper(weighted),
        tts=quantiles([job.tts_ns for job in known if job.tts_ns is not None]),
        ttr=quantiles([ns for ns, recovered in recoveries if recovered]),
        unrecovered=sum(not recovered for _, recovered in recoveries) - recovering,
        recovering=recovering,
        failures_per_job=failures / count,
        failures_without_preemptions=(failures - sum(job.preempted for job in jobs)) / count,
        failures=failures,
        lost=held - effective,
        held=held,
        parts={c: sum(job.components_ns[c] * w for job, w in weighted) for c in COMPONENT_LABELS},
        mean_ns={
            c: sum(job.components_ns[c] for job in known) // max(1, len(known))
            for c in COMPONENT_LABELS
        },
    )


def component_rows(
    jobs: Sequence[Job],
    now: Summary,
    before: Summary | None,
    components: Components = COMPONENTS,
) -> list[ComponentRow]:
    """Return the seven rows of the components table in stack order."""
    return [
        _component_row(name, components[name].owner, jobs, now, before) for name in COMPONENT_LABELS
    ]


def quantiles(values: Sequence[int]) -> Quantiles | None:
    """Return median and 90th percentile, or None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return Quantiles(_quantile(ordered, 50), _quantile(ordered, 90))


def _component_row(
    name: str, owner: str, jobs: Sequence[Job], now: Summary, before: Summary | None
) -> ComponentRow:
    share = now.share_pct(name)
    share_before = before.share_pct(name) if before else None
    change = share - share_before if share is not None and share_before is not None else None
    good = None
    if change is not None and abs(change) >= 0.1:
        good = (change > 0) == (name == "effective")
    return ComponentRow(
        name=name,
        owner=owner,
        share_pct=share,
        change=change,
        good=good,
        mean_ns=now.mean_ns[name] if now.measured else None,
        history=tuple(
            _percent(job.components_ns[name], job.wall_ns) if job.measured else None for job in jobs
        ),
    )


def _quantile(ordered: Sequence[int], percent: int) -> int:
    whole, part = divmod((len(ordered) - 1) * percent, 100)
    above = ordered[min(whole + 1, len(ordered) - 1)]
    return ordered[whole] + (above - ordered[whole]) * part // 100


def _weighted_paper(weighted: Sequence[tuple[Job, int]]) -> float | None:
    pairs = [(job.ett_pct_paper, job.wall_ns * w) for job, w in weighted]
    known = [(percent, weight) for percent, weight in pairs if percent is not None]
    whole = sum(weight for _, weight in known)
    return sum(percent * weight for percent, weight in known) / whole if whole else None


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
