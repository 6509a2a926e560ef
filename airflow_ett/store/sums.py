"""Sums over jobs: what the rollup keeps of a day and the summaries tell of a period.

Whole numbers that add up. Those of :data:`MEASURES` count the jobs with an ETT% alone: without one,
nobody knows what a job's time went into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_ett.metric import COMPONENTS

TOTALS = ("jobs", "attempts", "wall_ns", "held_ns", "effective_ns", "released_weighted_ms")
"""Sums over all jobs. ``released_weighted_ms`` are the accelerator-milliseconds that publishing in
their trainers would have held."""

SPENT = {name: f"{name}_spent_ns" for name in COMPONENTS}
"""Component to the measure of its time: these add up to the wall clock of the measured jobs."""

WEIGHTED = {name: f"{name}_weighted_ms" for name in COMPONENTS}
"""Component to the measure of its accelerator-milliseconds (nanoseconds would pass 64 bits)."""

MEASURES = (
    *("measured", "measured_held_ns", "held_weighted_ms", "ett_ppm"),
    *("tts_ns", "ttr_ns", "recoveries"),
    *SPENT.values(),
    *WEIGHTED.values(),
)
"""``ett_ppm`` adds the jobs' ETT% in millionths; ``ttr_ns`` and ``recoveries`` those that succeeded
after a failure."""

COLUMNS = (
    *("accelerators", "attempts", "wall_ns", "held_ns", "effective_ns", "ett_pct"),
    *("tts_ns", "ttr_ns", "recoveries", "components_ns", "nof_by_cause", "released_ns"),
)
"""The columns of a job that :meth:`Sums.add_job` takes."""

_MS = 1_000_000


@dataclass(slots=True)
class Sums:
    """Whole numbers by the names of :data:`TOTALS` and :data:`MEASURES`; failures by cause."""

    numbers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def __getitem__(self, name: str) -> int:
        return self.numbers[name]

    def add(self, other: Sums) -> None:
        """Add what another one holds."""
        self.numbers.update(other.numbers)
        self.failures.update(other.failures)

    def add_job(
        self,
        accelerators: int,
        attempts: int,
        wall_ns: int,
        held_ns: int,
        effective_ns: int,
        ett_pct: float | None,
        tts_ns: int | None,
        ttr_ns: int | None,
        recoveries: int | None,
        components_ns: Mapping[str, int],
        nof_by_cause: Mapping[str, int],
        released_ns: int | None,
    ) -> None:
        """Add a job, given by its :data:`COLUMNS`."""
        numbers = self.numbers
        numbers["jobs"] += 1
        numbers["attempts"] += attempts
        numbers["wall_ns"] += wall_ns
        numbers["held_ns"] += held_ns
        numbers["effective_ns"] += effective_ns
        numbers["released_weighted_ms"] += (released_ns or 0) * accelerators // _MS
        for cause, count in nof_by_cause.items():
            self.failures[cause] += count
        if ett_pct is None:
            return
        numbers["measured"] += 1
        numbers["measured_held_ns"] += held_ns
        numbers["held_weighted_ms"] += held_ns * accelerators // _MS
        numbers["ett_ppm"] += round(ett_pct * 10_000)
        numbers["tts_ns"] += tts_ns or 0
        numbers["ttr_ns"] += ttr_ns or 0
        numbers["recoveries"] += recoveries or 0
        for name, ns in components_ns.items():
            numbers[SPENT[name]] += ns
            numbers[WEIGHTED[name]] += ns * accelerators // _MS

    def row(self) -> dict[str, Any]:
        """Return the columns that the rollup has for them."""
        names = (*TOTALS, *MEASURES)
        return {name: self.numbers[name] for name in names} | {"failures": dict(self.failures)}
