"""The jobs as the levers see them: attempts with their phases, and what weighs how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from airflow_ett.metric.plans.sets import Result

NEEDED = frozenset(
    {
        *("dag_id", "run_id", "task_id", "job", "begin_ns", "ett_pct", "wall_ns", "effective_ns"),
        *("accelerators", "nof", "nos", "utt_ns", "wtt_ns", "tts_ns", "ttr", "phases_ns"),
        *("levels_ns", "positions_ns", "attempts", "checkpoints", "compiles"),
    }
)
"""The keys of a result that are read. Of ``checkpoints`` a few are enough: they only tell whether
saves are committed beside the training."""

Name = tuple[str, int, int, int]
"""A job and an attempt of it; zeros for the job as a whole."""


class Piece(NamedTuple):
    """A job, or one attempt of it. ``weight`` is what a nanosecond of it counts in ETT%.

    ``used`` are the levers of the trainer that worked in the attempt; none of a whole job.
    """

    job: Result
    weight: int
    name: Name
    phases: Mapping[str, int]
    used: frozenset[str] = frozenset()


class Jobs:
    """The jobs with an ETT%, in an order of their own.

    Weighed by accelerators, or alike where no job holds any. ``wall`` and ``effective`` are sums so
    weighed, ``phases`` that of each phase. ``pieces`` are their attempts, ``whole`` themselves.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        known = [result for result in results if result["ett_pct"] is not None]
        self.results = sorted(known, key=lambda job: (job["begin_ns"], job["job"]))
        self.accelerated = any(job["accelerators"] for job in self.results)
        self.weights = [job["accelerators"] if self.accelerated else 1 for job in self.results]
        weighed = list(zip(self.results, self.weights, strict=True))
        self.wall = sum(job["wall_ns"] * weight for job, weight in weighed)
        self.effective = sum(job["effective_ns"] * weight for job, weight in weighed)
        self.phases: Counter[str] = Counter()
        for job, weight in weighed:
            for phase, ns in job["phases_ns"].items():
                self.phases[phase] += ns * weight
        self.whole = [
            Piece(job, weight, (job["job"], 0, 0, 0), job["phases_ns"]) for job, weight in weighed
        ]
        self.pieces = [
            Piece(job, weight, _name(job, attempt), attempt["phases_ns"], _used(attempt))
            for job, weight in weighed
            for attempt in job["attempts"]
        ]

    @property
    def runs(self) -> int:
        """How many runs there are: one may have several jobs."""
        return len({job["run_id"] for job in self.results})

    def by_task(self) -> list[list[Result]]:
        """Return the jobs of each task: its jobs train alike."""
        tasks: dict[tuple[str, str], list[Result]] = {}
        for job in self.results:
            tasks.setdefault(task_of(job), []).append(job)
        return [jobs for _, jobs in sorted(tasks.items())]

    def like(self, phase: str) -> tuple[str, ...]:
        """Return the phases that count as ``phase``: itself and ``<phase>.<rest>``."""
        inner = f"{phase}."
        return tuple(sorted(p for p in self.phases if p == phase or p.startswith(inner)))

    def points(self, saved: int) -> float:
        """Return what ETT% gains, in points, where ``saved`` (weighed) goes off the wall clock."""
        left = self.wall - saved
        return 100 * self.effective * saved / (self.wall * left) if left else 0.0


def _name(job: Result, attempt: Mapping[str, Any]) -> Name:
    return (
        job["job"],
        attempt["submission"],
        attempt["scheduler_restart"],
        attempt["elastic_restart"],
    )


def _used(attempt: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(row["lever"] for row in attempt["levers"] if row["outcome"] == "used")


def task_of(job: Result) -> tuple[str, str]:
    """Return the task whose job it is."""
    return job["dag_id"], job["task_id"]
