"""What became of the trainer's levers, by attempt. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.metric.outcomes import named
from airflow_ett.ui.run.head import Chip
from airflow_ett.ui.run.saves import Listing
from airflow_ett.ui.words import size

ROWS = 12
_CHIPS: Mapping[str, Chip] = {
    "used": ("ok", "Used"),
    "saved": ("ok", "Saved"),
    "missed": ("none", "Missed"),
    "off": ("none", "Off"),
    "unable": ("warn", "Unable"),
}


@dataclass(frozen=True, slots=True)
class Lever:
    """One outcome of a lever; ``rank`` 0 where the first rank told."""

    attempt: int
    name: str
    outcome: Chip
    ns: int | None
    size: str
    reason: str
    rank: int


def levers(result: Mapping[str, Any], *, show_all: bool) -> Listing[Lever]:
    """Return what the levers came to, oldest first; the newest alone unless ``show_all``."""
    rows = [
        Lever(
            attempt=number,
            name=named(row["lever"]).capitalize(),
            outcome=_CHIPS.get(row["outcome"], ("none", row["outcome"].capitalize())),
            ns=row["duration_ns"],
            size=size(row["bytes"]),
            reason=row["reason"] or "",
            rank=row["rank"],
        )
        for number, attempt in enumerate(result["attempts"], 1)
        for row in attempt["levers"]
    ]
    unable = sum(row.outcome == _CHIPS["unable"] for row in rows)
    hint = f"{unable} could not work; the training went on without" if unable else ""
    return Listing(tuple(rows if show_all else rows[-ROWS:]), len(rows), hint)
