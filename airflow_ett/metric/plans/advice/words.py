"""Counted facts in words."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from airflow_ett.metric import format as show
from airflow_ett.metric.plans.advice.gains import Saving
from airflow_ett.metric.plans.advice.jobs import Jobs


def of_runs(count: int, jobs: Jobs) -> str:
    """Return such as ``6 of 30 runs``."""
    return f"{count:,} of {show.counted(jobs.runs, 'run')}"


def typical(lengths: Iterable[int]) -> str:
    """Return the median of lengths in ns."""
    return show.duration(round(median(lengths)))


def accelerators(found: Saving) -> str:
    """Return how many accelerators the jobs that show it held."""
    counts = {piece.job["accelerators"] for piece, _ in found.shown}
    least, most = min(counts), max(counts)
    if not most:
        return "their machines"
    if least == most:
        return show.counted(most, "accelerator")
    return f"{least:,} to {most:,} accelerators"
