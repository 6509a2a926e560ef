"""What must be the same in all rows for them to be compared: failures, detection and workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ablation.figures import Spread
from ablation.kept import Run

_NS = 1_000_000_000
DETECTION_S = 0.5
"""By so much medians may differ: two looks of a watcher, and the agent's."""


class Check(NamedTuple):
    """One thing that is to be the same, what was seen by row, and whether it is."""

    name: str
    seen: Mapping[str, str]
    holds: bool


def checks(rows: Mapping[str, Sequence[Run]]) -> list[Check]:
    """Return what was seen of the runs by row.

    Failures and workload are compared repetition by repetition: each has failures of its own.
    """
    return [
        _exactly("failures", rows, _failures),
        _exactly("workload", rows, _workload),
        _detection(rows),
    ]


def _exactly(name: str, rows: Mapping[str, Sequence[Run]], tell: Any) -> Check:
    told = {row: {run.repetition: tell(run.result) for run in runs} for row, runs in rows.items()}
    by_repetition: dict[int, set[str]] = {}
    for seen in told.values():
        for repetition, text in seen.items():
            by_repetition.setdefault(repetition, set()).add(text)
    shown = {row: "; ".join(sorted(set(seen.values()))) for row, seen in told.items()}
    return Check(name, shown, all(len(texts) == 1 for texts in by_repetition.values()))


def _failures(result: Mapping[str, Any]) -> str:
    ended = [a for a in result["attempts"] if a["cause"] is not None]
    return ", ".join(f"{attempt['cause']} at {attempt['cursor_to']:,}" for attempt in ended)


def _workload(result: Mapping[str, Any]) -> str:
    return f"{max(attempt['cursor_to'] or 0 for attempt in result['attempts']):,} samples"


def _detection(rows: Mapping[str, Sequence[Run]]) -> Check:
    """Seconds in which failures were not known yet: as long in all rows, within their spread."""
    took = {
        row: Spread(tuple(_undetected_s(run.result) for run in runs)) for row, runs in rows.items()
    }
    first = next(iter(took.values()))
    holds = all(
        spread.overlaps(first) or abs(spread.median - first.median) <= DETECTION_S
        for spread in took.values()
    )
    shown = {
        row: f"{spread.median:.2f} s ({min(spread.values):.2f}–{max(spread.values):.2f})"
        for row, spread in took.items()
    }
    return Check("detection", shown, holds)


def _undetected_s(result: Mapping[str, Any]) -> float:
    return float(result["phases_ns"].get("failure_detection", 0) / _NS)
