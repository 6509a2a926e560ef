"""What a reader must know before the numbers, worst first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import JobState
from airflow_ett.metric import Phase
from airflow_ett.metric.hosts import listed
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.run.evidence import Evidence, evidence_of, place_of
from airflow_ett.ui.run.progress import Standstill
from airflow_ett.ui.words import cause, isolated

_CLOCK = "a clock of attempt"
"""How the metric begins a reason of this kind."""
_REASONS = 8


@dataclass(frozen=True, slots=True)
class Notice:
    """``lead`` is set bold, ``items`` are a list below ``text``, ``evidence`` is folded."""

    kind: str
    lead: str
    text: str = ""
    items: tuple[str, ...] = ()
    phase: str = ""
    evidence: Evidence | None = None


def notices(
    result: Mapping[str, Any],
    clock: Clock,
    *,
    stands: Standstill | None,
    silent_ns: int | None,
    pruned: bool,
) -> tuple[Notice, ...]:
    """Return the notices of a job."""
    found = (
        _failed(result),
        _stands(result, clock, stands, silent_ns),
        _silent(result, clock, silent_ns) if stands is None else None,
        _unmeasured(result),
        _skewed(result),
        _pruned() if pruned else None,
    )
    return tuple(notice for notice in found if notice is not None)


def _failed(result: Mapping[str, Any]) -> Notice | None:
    if result["state"] != JobState.FAILED:
        return None
    numbered = [(n, one) for n, one in enumerate(result["attempts"], 1) if one["cause"]]
    number, last = numbered[-1] if numbered else (None, None)
    # The job's own cause wins: the launcher may have given up for another reason.
    words = isolated(cause(result["cause"] or (last and last["cause"])))
    place = place_of(last["evidence"]) if last else ""
    where = "".join(
        [f" on {isolated(place)}" if place else "", f", attempt {number}" if number else ""]
    )
    evidence = evidence_of(last["evidence"]) if last else None
    text = evidence.text if evidence and evidence.text else "Nobody told why."
    return Notice("bad", f"{words}{where}.", text, evidence=evidence)


def _stands(
    result: Mapping[str, Any], clock: Clock, stands: Standstill | None, silent_ns: int | None
) -> Notice | None:
    if stands is None:
        return None
    since = clock.instant(stands.since_ns)
    what = "No new data was trained on" if stands.replaying else "The cursor has not moved"
    # No length that grows: a notice is read out again whenever its words change.
    heard = "The job still gives signs of life."
    if silent_ns is not None:
        heard = f"Nothing was heard of the job since {clock.instant(result['end_ns'])}."
    last = result["attempts"][-1]
    hosts = listed(last["hosts"]) or last["host"]
    where = f" on {isolated(hosts)}." if hosts else "."
    return Notice("warn", f"{what} since {since}.", f"{where} {heard}", phase=stands.phase)


def _silent(result: Mapping[str, Any], clock: Clock, silent_ns: int | None) -> Notice | None:
    if silent_ns is None:
        return None
    since = clock.instant(result["end_ns"])
    text = (
        "Either it gives no sign of life, or nobody reads its event log: the task in Airflow tells "
        "which."
    )
    return Notice("warn", f"Nothing was heard of this job since {since}.", text)


def _unmeasured(result: Mapping[str, Any]) -> Notice | None:
    reasons = tuple(r for r in result["quality_reasons"] if not r.startswith(_CLOCK))
    if result["current_phase"] == Phase.QUEUE and result["quality"] == "launcher_only":
        told = ", ".join(result["attempts"][-1]["waits"])
        said = f", which says: {isolated(told)}." if told else "."
        return Notice("none", "No ETT% yet.", f"It waits in its scheduler's queue{said}")
    if result["quality"] == "launcher_only":
        text = "The scheduler's times are known, but the trainer sent no events."
        return Notice("none", "No ETT% for this run.", text, _some(reasons))
    if not reasons:
        return None
    text = "What no event explains is unattributed and shown."
    return Notice("none", "Part of this job is not measured.", text, _some(reasons))


def _skewed(result: Mapping[str, Any]) -> Notice | None:
    found = tuple(r for r in result["quality_reasons"] if r.startswith(_CLOCK))
    if not found:
        return None
    text = "Times are never corrected, so phases at the edges of attempts may be off by as much."
    return Notice("none", "Clocks disagree.", text, _some(found))


def _some(reasons: tuple[str, ...]) -> tuple[str, ...]:
    if len(reasons) <= _REASONS:
        return reasons
    return (*reasons[:_REASONS], f"and {len(reasons) - _REASONS} more: see the job as JSON")


def _pruned() -> Notice:
    text = "These numbers stay as they are; only the timeline and the events can't be shown again."
    return Notice("none", "The raw events of this job were pruned.", text)
