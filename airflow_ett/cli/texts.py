"""What ``interval``, ``whatif`` and ``compare`` print for people."""

from __future__ import annotations

from airflow_ett.metric.format import UNKNOWN, accelerator_hours, change, duration, percent
from airflow_ett.metric.plans.compare import Comparison
from airflow_ett.metric.plans.interval import DAY_S, IntervalPlan
from airflow_ett.metric.plans.whatif import WhatIf
from airflow_ett.metric.report import table


def interval(plan: IntervalPlan) -> str:
    """Return the optimum, what it saves, and the curve."""
    costs = plan.costs
    per_day = costs.failures * DAY_S / costs.time_s
    lines = [
        f"A save blocks for {_seconds(costs.blocking_s)}, {per_day:.3g} failures a day.",
        f"Optimal interval: {_seconds(plan.optimal_interval_s)}, "
        f"wastes {percent(plan.wtt_pct)} ({plan.note})",
    ]
    if plan.current:
        now = plan.current
        lines.append(
            f"Current interval: {_seconds(now.interval_s)}, wastes {percent(now.wtt_pct)}; the "
            f"optimum saves {_seconds(plan.saving_s)} in {_seconds(costs.time_s)} of training"
        )
    rows: list[tuple[str, ...]] = [("", "Interval", "Unsaved", "Blocking", "Wasted")]
    for point in plan.curve:
        optimal = point.interval_s == plan.optimal_interval_s
        mark = "optimal" if optimal else "current" if point == plan.current else ""
        times = (_seconds(value) for value in point[:3])
        rows.append((mark, *times, percent(point.wtt_pct)))
    lines += ["", f"Lost in {_seconds(costs.time_s)} of training:", table(rows, texts=1)]
    return "\n".join(lines)


def whatif(found: WhatIf) -> str:
    """Return each change with what it saves, the largest first, and all together."""
    rows = [("Change", "Saved", "Accelerator-hours", "ETT%", "Points")]
    before = found.ett_pct_before
    for gain in sorted(found.changes, key=lambda gain: -gain.saved_ns):
        rows.append(
            (gain.change, *_gain(gain.saved_ns, gain.saved_accelerator_ns, before, gain.ett_pct))
        )
    everything = _gain(found.saved_ns, found.saved_accelerator_ns, before, found.ett_pct_after)
    rows.append(("All together", *everything))
    head = f"Jobs: {found.jobs}. Wall clock {duration(found.wall_ns)}. ETT%: {percent(before)}"
    return f"{head}\n\n{table(rows, texts=1)}"


def comparison(found: Comparison) -> str:
    """Return both ETT% and the parts of their difference."""
    rows: list[tuple[str, ...]] = [("Part", "Lost before", "Lost after", "Points", "Share")]
    for gain in found.parts:
        losses = (percent(ppm / 10_000) for ppm in (gain.lost_before_ppm, gain.lost_after_ppm))
        rows.append((gain.part, *losses, change(gain.gain_ppm / 10_000), percent(gain.share_pct)))
    before, after = found.before_ppm / 10_000, found.after_ppm / 10_000
    share = percent(100.0) if found.change_ppm else UNKNOWN
    lost = percent(100 - before), percent(100 - after)
    rows.append(("All together", *lost, change(after - before), share))
    head = (
        f"ETT%: {percent(before)} (jobs: {found.before_jobs}) to "
        f"{percent(after)} (jobs: {found.after_jobs}), weighed by wall clock"
    )
    return f"{head}\n\n{table(rows, texts=1)}"


def _gain(
    saved_ns: int, accelerator_ns: int, before: float | None, after: float | None
) -> tuple[str, str, str, str]:
    points = None if before is None or after is None else after - before
    return duration(saved_ns), accelerator_hours(accelerator_ns), percent(after), change(points)


def _seconds(value: float | None) -> str:
    return duration(None if value is None else round(value * 1_000_000_000))
