"""What ``interval``, ``whatif``, ``compare`` and ``recompiles`` print for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_ett.metric.format import (
    UNKNOWN,
    accelerator_hours,
    change,
    counted,
    duration,
    percent,
)
from airflow_ett.metric.plans.compare import Comparison
from airflow_ett.metric.plans.interval import DAY_S, IntervalPlan
from airflow_ett.metric.plans.recompiles import LIMIT, VARIABLE, Recompiles
from airflow_ett.metric.plans.whatif import WhatIf
from airflow_ett.metric.report import escaped, table

_NO_GRAPH = """\
Jobs: {jobs}. They tell of no compilation: they use no torch.compile, ended before their first step,
or run without a Session."""
_WIDEST = 80


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


def recompiles(found: Recompiles) -> str:
    """Return what changed, the costliest first, and below it the lines that help."""
    if not found.graphs:
        return _NO_GRAPH.format(jobs=found.jobs)
    compiled = f"{counted(found.graphs, 'graph')} compiled in {duration(found.compile_ns)}"
    if not found.groups:
        return f"Jobs: {found.jobs}. {compiled}, none of them anew: there is nothing to add."
    rows: list[tuple[str, ...]] = [("What changed", "Values", "Graphs", "Lost")]
    for group in found.groups:
        what, values = _cut(group.what), _cut(_few(group.values))
        rows.append((what, values, str(group.graphs), duration(group.lost_ns)))
    head = f"Jobs: {found.jobs}. {compiled}, {found.anew} anew in {duration(found.anew_ns)}."
    return "\n".join([head, *_remarks(found), "", table(rows, texts=2), *_additions(found)])


def _remarks(found: Recompiles) -> Iterator[str]:
    if beside := sum(group.beside_ns for group in found.groups):
        yield f"The training did not wait for {duration(beside)} of it, spent in other threads."
    if found.at_limit:
        yield (
            f"{counted(found.at_limit, 'function')} reached torch's limit of {LIMIT} graphs: what "
            "fits none of them runs uncompiled."
        )


def _additions(found: Recompiles) -> Iterator[str]:
    for group in found.groups:
        if group.add:
            yield from ("", escaped(group.what), *(f"  {escaped(line)}" for line in group.add))
    if "," in found.dynamic_sources:
        yield from ("", "All sizes and whole numbers, without touching the training's code")
        yield escaped(f'  env={{"{VARIABLE}": "{found.dynamic_sources}"}}  # of the operator')


def _cut(text: str) -> str:
    """Return a text for a cell: torch's name of a thing may be a page long."""
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _few(values: Sequence[str]) -> str:
    """Return some of the values, where they are many the first and the last ones."""
    return ", ".join(values if len(values) < 5 else (*values[:2], "...", values[-1]))


def _gain(
    saved_ns: int, accelerator_ns: int, before: float | None, after: float | None
) -> tuple[str, str, str, str]:
    points = None if before is None or after is None else after - before
    return duration(saved_ns), accelerator_hours(accelerator_ns), percent(after), change(points)


def _seconds(value: float | None) -> str:
    return duration(None if value is None else round(value * 1_000_000_000))
