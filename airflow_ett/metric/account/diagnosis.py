"""What an attempt's processes tell about themselves: the slowest rank, and a clock that is off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from airflow_ett.events import Kind
from airflow_ett.metric.account.nodes import Nodes
from airflow_ett.metric.clock.attempts import Attempt
from airflow_ett.metric.clock.endings import SKEW_NS, Outcome, verdict
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import Notes, whole
from airflow_ett.metric.phases import Phase
from airflow_ett.metric.result import Skew, Slowest


def slowest(evidence: Evidence, nodes: Nodes) -> dict[str, Slowest]:
    """Return, by phase, which of several ranks spent most time in it on its main lane, and where.

    Phases within a phase count for both. Step time is left out: ranks that wait for each other all
    take as long as the slowest.
    """
    spent = _spent(evidence)
    if len(spent) < 2:
        return {}
    found: dict[str, Slowest] = {}
    for number, by_phase in sorted(spent.items()):
        for phase, ns in by_phase.items():
            if ns and (phase not in found or ns > found[phase].ns):
                found[phase] = Slowest(number, ns, nodes.host_of(number))
    return dict(sorted(found.items()))


def _spent(evidence: Evidence) -> dict[int, Counter[str]]:
    """Return by rank what it spent by phase: as its agent sums it up, else as its log tells."""
    found = {}
    for number, rank in evidence.ranks.items():
        found[number] = rank.lanes.spent.copy()
        found[number][Phase.DATA_WAIT.value] += rank.rows.wait_ns
    for event in evidence.of(Kind.PROCESS_ENDED):
        told = event.data.get("spent")
        phases = told.get("phases") if isinstance(told, Mapping) else None
        if isinstance(told, Mapping) and isinstance(phases, Mapping) and event.rank is not None:
            sums = {**phases, Phase.DATA_WAIT.value: told.get("wait_ns")}
            found[event.rank] = Counter({name: whole(sums, name) or 0 for name in sums})
    return found


def unseen_end(attempt: Attempt) -> bool:
    """Say whether the attempt died and nobody was there to close its open interval."""
    evidence = attempt.evidence
    told = evidence.of(Kind.FAILURE, Kind.PROCESS_ENDED, Kind.SESSION_ENDED)
    return attempt.outcome is Outcome.FAILURE and not told


def known_cursor(evidence: Evidence) -> int | None:
    """Return the high-water mark that the Sessions found at first, None if none has started."""
    told = (whole(event.data, "cursor_hwm") for event in evidence.of(Kind.SESSION_STARTED))
    return max((cursor for cursor in told if cursor is not None), default=None)


def clock_skew(attempt: Attempt, notes: Notes) -> Skew | None:
    """Return how far the processes' clocks are off the launcher's; None where nothing tells."""
    signs, ended = attempt.evidence.signs, verdict(attempt.evidence)
    if signs is None:
        return None
    submitted = attempt.evidence.of(Kind.SUBMITTED)
    at_most = signs[0] - submitted[0].time_ns if submitted else None
    # A process that nobody saw end may have lived on when the launcher gave it up.
    seen = attempt.cause is None or attempt.evidence.of(Kind.PROCESS_ENDED)
    at_least = signs[1] - ended.time_ns if ended and seen else None
    ns = 0
    if at_least is not None and at_least > 0:
        ns = at_least
    elif at_most is not None and at_most < 0:
        ns = at_most
    if abs(ns) > SKEW_NS:
        way = "ahead of" if ns > 0 else "behind"
        seconds = f"{abs(ns) / 1e9:.1f} s"
        notes.add(f"a clock of attempt {attempt.id} is {seconds} or more {way} the launcher's")
    return Skew(ns, at_least, at_most)
