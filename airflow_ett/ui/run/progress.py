"""Whether a live training stands still, and whether anybody has heard of it lately. Pure.

A job is due by what was seen of it (up to ``end_ns``, where its clock stands), not by the present:
an ingest that lags is no standstill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.metric import COMPONENTS, Components, Phase

_MINUTE_NS = 60 * 10**9
STEPPING_NS = 5 * _MINUTE_NS
"""Steps that take longer than this are rare; the trainer's watchdog waits as long for the first."""
BUSY_NS = 30 * _MINUTE_NS
"""What stops the steps on purpose, such as an evaluation or a save, may take longer."""
SILENT_NS = 5 * _MINUTE_NS
"""A live job is read every few seconds, and gives a sign of life at least twice a minute."""

_STEPPING = frozenset({Phase.TRAIN, Phase.DATA_WAIT, Phase.LOOP_OTHER, Phase.UNATTRIBUTED})
_NEVER = frozenset({Phase.REPLAY, Phase.FAILURE_DETECTION})
_IN_LOOP = frozenset({"wasted", "pt2_compile"})


@dataclass(frozen=True, slots=True)
class Standstill:
    """Training has not advanced since ``since_ns``, for ``for_ns``, and is in ``phase``.

    ``replaying``: the cursor itself has moved since, over data that the job had trained on before.
    """

    since_ns: int
    for_ns: int
    phase: str
    replaying: bool


def standstill(
    result: Mapping[str, Any], now_ns: int, components: Components = COMPONENTS
) -> Standstill | None:
    """Return since when a live job's training has not advanced though it should; None if it did.

    Nothing is due while the job starts, recovers, or repeats what it had trained before.
    """
    phase, since_ns, heard_ns = result["current_phase"], result["progress_ns"], result["end_ns"]
    if result["frozen"] or phase is None or since_ns is None:
        return None
    replaying = _is_behind(result)
    patience_ns = _patience_ns(phase, replaying, components)
    if patience_ns is None or heard_ns - since_ns < patience_ns:
        return None
    return Standstill(since_ns, max(now_ns, heard_ns) - since_ns, phase, replaying)


def silence_ns(result: Mapping[str, Any], now_ns: int) -> int | None:
    """Return for how long nothing was heard of a live job, None where that is not long."""
    silent_ns: int = now_ns - result["end_ns"]
    return silent_ns if not result["frozen"] and silent_ns >= SILENT_NS else None


def _is_behind(result: Mapping[str, Any]) -> bool:
    """Say whether the newest attempt has yet to pass what those before it had reached."""
    *before, last = (attempt["cursor_to"] for attempt in result["attempts"])
    reached = max((cursor for cursor in before if cursor is not None), default=None)
    return last is None or (reached is not None and last <= reached)


def _patience_ns(phase: str, replaying: bool, components: Components) -> int | None:
    if phase == Phase.STALLED:
        return 0
    if replaying or phase in _NEVER:
        return None
    if phase in _STEPPING:
        return STEPPING_NS
    return BUSY_NS if components.of(phase) in _IN_LOOP else None
