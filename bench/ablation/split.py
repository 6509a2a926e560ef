"""Where the saving came from, beside the paper's, and why the two differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_ett.metric.plans.compare import PARTS, compare

Result = Mapping[str, Any]

PAPER = {"recovery": 58, "shutdown": 23, "checkpoint": 11, "start": 8}
"""Percent of the paper's saving; it has no other part."""

_NS = 1_000_000_000
_NAMED = 3


def split(before: Sequence[Result], after: Sequence[Result]) -> dict[str, float]:
    """Return each part's share of the change of ETT%, in percent; they sum to 100."""
    parts = compare(before, after).parts
    return {gain.part: gain.share_pct or 0.0 for gain in parts}


def saved(before: Sequence[Result], after: Sequence[Result]) -> dict[str, float]:
    """Return how many seconds a run spent less in each part."""
    less = {part: _less(before, after, part) for part in PARTS if part != "checkpoint"}
    checkpoint = less["steady"].pop("checkpoint_save", 0)
    ns = {part: sum(phases.values()) for part, phases in less.items()} | {"checkpoint": checkpoint}
    return {part: ns[part] / _NS for part in PARTS}


def why(before: Sequence[Result], after: Sequence[Result], shares: Mapping[str, float]) -> str:
    """Return a paragraph on why the shares are not the paper's, from the numbers alone."""
    wall_s, effective_s = _mean_s(before, "wall_ns"), _mean_s(before, "effective_ns")
    failures = sum(job["nof"] for job in before) / len(before)
    recovery = _less(before, after, "recovery")
    start = _less(before, after, "start")
    sentences = [
        f"A run of the baseline lasts {wall_s:.0f} s, trains for {effective_s:.0f} s of them and "
        f"fails {failures:.0f} times; the paper's are production trainings, of other lengths and "
        "with other failures.",
        f"Recovery has {shares['recovery']:.0f}% (paper: {PAPER['recovery']}%): "
        f"{_largest(recovery)}, in all recoveries of a run.",
        f"Shutdown has {shares['shutdown']:.0f}% (paper: {PAPER['shutdown']}%), and is an input: "
        f"{_in_shutdown(before):.1f} s of publishing were chosen. The sweep shows others.",
        f"Checkpoints have {shares['checkpoint']:.0f}% (paper: {PAPER['checkpoint']}%): "
        f"{_saves(before)} in the baseline, {_saves(after)} with all levers. What a failure loses "
        "between two of them counts as recovery.",
        f"The start has {shares['start']:.0f}% (paper: {PAPER['start']}%): {_largest(start)}. "
        "What remains of it is a larger part of a shorter run.",
        f"The rest of the loop, which the paper does not count, has {shares['steady']:.0f}%.",
    ]
    return " ".join(sentences)


def _less(before: Sequence[Result], after: Sequence[Result], bucket: str) -> Counter[str]:
    """Return by phase how many ns a run spent less in a bucket."""
    less: Counter[str] = Counter()
    for sign, jobs in ((1, before), (-1, after)):
        for job in jobs:
            for phase, ns in job["positions_ns"][bucket].items():
                less[phase] += sign * ns // len(jobs)
    return less


def _largest(less: Counter[str]) -> str:
    """Name the phases that changed most."""
    ordered = sorted(less.items(), key=lambda item: -abs(item[1]))[:_NAMED]
    told = [
        f"{phase} {abs(ns) / _NS:.1f} s {'shorter' if ns >= 0 else 'longer'}"
        for phase, ns in ordered
        if abs(ns) >= _NS // 10
    ]
    return ", ".join(told) or "nothing in it changed by a tenth of a second"


def _saves(jobs: Sequence[Result]) -> str:
    saves = sum(job["nos"] for job in jobs) / len(jobs)
    return f"{saves:.0f} saves of {_mean_s(jobs, 'csbt_ns'):.2f} s"


def _in_shutdown(jobs: Sequence[Result]) -> float:
    return float(sum(job["phases_ns"].get("publish", 0) for job in jobs) / len(jobs) / _NS)


def _mean_s(jobs: Sequence[Result], measure: str) -> float:
    return float(sum(job[measure] for job in jobs) / len(jobs) / _NS)
