"""Runs as if their loops had gone at one pace.

A machine that others use, too, steps a tenth slower or faster an hour later. That is no lever's
doing, and it changes ETT%: who trains slower trains for a larger share of the time. What else takes
longer on a slower machine is left as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Result = Mapping[str, Any]

_WAIT = "data_wait"


def trained_ns(results: Sequence[Result]) -> int:
    """Return how long runs trained on new data, at the median."""
    return round(median(result["effective_ns"] for result in results))


def at_pace(result: Result, effective_ns: int) -> Result:
    """Return a run's numbers as if the same samples had been trained in ``effective_ns``.

    The loop's waiting for data changes in the same ratio.
    """
    waited = result["positions_ns"]["steady"].get(_WAIT, 0)
    longer = effective_ns - result["effective_ns"]
    waits = waited * longer // result["effective_ns"]
    wall_ns = result["wall_ns"] + longer + waits
    levels, positions = result["levels_ns"], result["positions_ns"]
    return {
        **result,
        "effective_ns": effective_ns,
        "wall_ns": wall_ns,
        "ett_pct": 100 * effective_ns / wall_ns,
        "levels_ns": levels
        | {"effective": levels["effective"] + longer, "steady": levels["steady"] + waits},
        "positions_ns": positions | {"steady": positions["steady"] | {_WAIT: waited + waits}},
    }
