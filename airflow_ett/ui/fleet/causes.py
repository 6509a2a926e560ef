"""Failures by cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_ett.store.sums import Sums
from airflow_ett.ui import words
from airflow_ett.ui.fleet.amounts import per_100_attempts


@dataclass(frozen=True, slots=True)
class CauseRow:
    """A cause in words: its failures, and per 100 attempts now and before (None: no attempt)."""

    label: str
    count: int
    now: float | None
    before: float | None


def cause_rows(now: Sums, before: Sums) -> list[CauseRow]:
    """Return the causes of either period, those with the most failures now first."""
    causes = sorted(
        now.failures.keys() | before.failures.keys(),
        key=lambda cause: (-now.failures[cause], -before.failures[cause], cause),
    )
    return [
        CauseRow(
            label=words.cause(cause),
            count=now.failures[cause],
            now=per_100_attempts(now.failures[cause], now["attempts"]),
            before=per_100_attempts(before.failures[cause], before["attempts"]),
        )
        for cause in causes
    ]
