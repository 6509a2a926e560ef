"""Results as every version has stored them, read as this one would have told them.

What a job's numbers consist of has grown. An older result stays as it is until its job is measured
again, and of a job whose raw events were pruned that is never.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_JOB: Mapping[str, Any] = {
    "excluded_ns": 0,
    "time_to_first_advance_ns": None,
    "positions_ns": {"effective": {}, "start": {}, "recovery": {}, "steady": {}, "shutdown": {}},
    "windows": {},
    "current_phase": None,
    "progress_ns": None,
}
_OF_ATTEMPT: Mapping[str, Any] = {
    "log": None,
    "clock_skew": None,
    "slowest": {},
    "hosts": [],
    "waits": {},
    "levers": [],
}
_OF_RECOVERY: Mapping[str, Any] = {"layer": "", "attempt": [0, 0, 0], "utt_ns": 0}
"""The attempt is one that no job has: which one it was, nobody told."""
_OF_PUBLISHED: Mapping[str, Any] = {
    **dict.fromkeys(("name", "registry", "checkpoint", "cursor", "bytes", "digest")),
    "existed": False,
}


def completed(
    result: Mapping[str, Any], *, held_ns: int, effective_ns: int, whole: bool = True
) -> dict[str, Any]:
    """Return a stored result, or some keys of one (``whole`` false), with what came later.

    What nobody told is unknown: empty, None or 0. Of the held time an old result tells no more
    than what of it was effective, so the rest is unattributed.
    """
    published = [_published(row) for row in result.get("published") or ()]
    later = {
        **_OF_JOB,
        "held_components_ns": _held(held_ns, effective_ns),
        "released_ns": sum(row["released_ns"] for row in published),
    }
    missing = {
        name: value
        for name, value in later.items()
        if (whole or name in result) and result.get(name) is None
    }
    found = {**result, **missing}
    for name, known in (("attempts", _OF_ATTEMPT), ("ttr", _OF_RECOVERY)):
        if found.get(name):
            found[name] = [{**known, **row} for row in found[name]]
    if published:
        found["published"] = published
    return found


def _published(row: Mapping[str, Any]) -> dict[str, Any]:
    begin, end = row["begin"], row["end"]
    took_ns = 0 if begin is None or end is None else max(0, end - begin)
    return {**_OF_PUBLISHED, "released_ns": took_ns, **row}


def _held(held_ns: int, effective_ns: int) -> dict[str, int]:
    return {"effective": effective_ns, "unattributed": held_ns - effective_ns}
