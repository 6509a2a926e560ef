"""The rows of the ablation: which levers each of them pulls."""

from __future__ import annotations

from dataclasses import dataclass

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("compile cache", ("compile_cache",)),
    ("fast batch", ("fast_batch",)),
    (
        "parallel init and lean communication",
        ("parallel_init", "lean_communication", "warm_recovery"),
    ),
    ("async checkpoints", ("background_saves",)),
    ("tuned interval", ("tuned_interval",)),
    ("immediate retry", ("immediate_retry",)),
    ("standalone publish", ("standalone_publish",)),
    ("batches in parcels", ("parcels",)),
    ("earlier job of the DAG", ("earlier_job",)),
)
"""What is added from row to row, in the order of the paper's sections, and the levers in it.

``parcels`` is none of the paper's: it is for what the rows before it were found to wait for most.
``earlier_job`` is none that is pulled: another job of the DAG has run before, as on all days but
the first, and what it kept is there."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row's name and the levers that it pulls."""

    name: str
    levers: frozenset[str]

    def beyond(self, other: Row) -> tuple[str, ...]:
        """Return the levers that this row pulls and the other one does not, in their order."""
        added = self.levers - other.levers
        return tuple(lever for _, levers in STEPS for lever in levers if lever in added)


def _cumulative() -> tuple[Row, ...]:
    rows = [Row("baseline", frozenset())]
    for name, levers in STEPS:
        rows.append(Row(f"+ {name}", rows[-1].levers | frozenset(levers)))
    return tuple(rows)


FULL = _cumulative()
"""Each row pulls one more lever than the one before it; the last one is no DAG's first job."""

BASELINE, ALL = FULL[0], FULL[-2]

QUICK = (BASELINE, Row("+ compile cache, fast batch", FULL[2].levers), Row("all", ALL.levers))
"""Three of them, for a quarter of an hour."""
