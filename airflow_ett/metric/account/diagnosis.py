"""What an attempt's processes tell about themselves: the slowest rank, and a clock that is off."""

from __future__ import annotations

from airflow_ett.events import Kind
from airflow_ett.metric.clock.attempts import Attempt
from airflow_ett.metric.clock.endings import SKEW_NS, Outcome, verdict
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import Notes, whole
from airflow_ett.metric.phases import Phase
from airflow_ett.metric.result import Skew, Slowest


def slowest(evidence: Evidence) -> dict[str, Slowest]:
    """Return, by phase, which of several ranks spent most time in it on its main lane.

    Phases within a phase count for both. Step time is left out: ranks that wait for each other all
    take as long as the slowest.
    """
    if len(evidence.ranks) < 2:
        return {}
    found: dict[str, Slowest] = {}
    for number in sorted(evidence.ranks):
        rank = evidence.ranks[number]
        spent = rank.lanes.spent.copy()
        spent[Phase.DATA_WAIT.value] += rank.rows.wait_ns
        for phase, ns in spent.items():
            if ns and (phase not in found or ns > found[phase].ns):
                found[phase] = Slowest(number, ns)
    return dict(sorted(found.items()))


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
