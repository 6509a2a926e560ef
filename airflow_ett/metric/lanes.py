"""The phases that a rank opened and closed, and where one ends that was never closed."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from airflow_ett.events import Event, Kind
from airflow_ett.metric.attempts import Attempt
from airflow_ett.metric.endings import Outcome, stalls
from airflow_ett.metric.evidence import Notes, text
from airflow_ett.metric.phases import RESERVED, Phase, component_of
from airflow_ett.metric.progress import Claim, Interval

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Lane:
    """A stretch on a named lane, as :class:`Claim` is one on the main lane."""

    name: str
    claim: Claim


@dataclass(frozen=True, slots=True)
class _Opened:
    begin_ns: int
    end_ns: int | None
    phase: str
    lane: str


def read_lanes(
    attempt: Attempt, events: list[Event], intervals: list[Interval], notes: Notes
) -> list[Lane]:
    """Return the phases of one rank, on all its lanes.

    A phase without an end ends with the one around it, with the next interval (a Session closes
    intervals at phase edges), with its Session where another one follows, or with the attempt's
    interruption, whichever comes first.
    """
    opened = _pair(attempt, events, notes)
    starts = [interval.begin_ns for interval in intervals]
    turns = _session_ends(events, until=last_session(events))
    lanes = []
    for span in opened:
        end = span.end_ns
        if end is None and span.lane == MAIN:
            end = next((turn for turn in turns if turn >= span.begin_ns), None)
        if end is None:
            end = _over(attempt, events, span)
            inner = _inner_end(span, opened, starts)
            if inner is not None and inner < end:
                end = inner
                notes.add(f"phase {span.phase} of attempt {attempt.id} has no end")
        if end < span.begin_ns:
            notes.add(f"phase {span.phase} of attempt {attempt.id} ends before it begins")
        else:
            claim = Claim(span.begin_ns, end, span.phase, span.begin_ns)
            lanes.append(Lane(span.lane, claim))
    return lanes


def stalled(attempt: Attempt) -> list[Claim]:
    """Return the stalls that a watchdog told; one still open lasts until something ended it."""
    claims = []
    for begin, end in stalls(attempt.evidence):
        if end is None:
            enders = [
                event.time_ns
                for event in attempt.evidence.of(Kind.FAILURE, Kind.SIGNAL, Kind.PROCESS_ENDED)
                if event.time_ns > begin
            ]
            end = min([*enders, attempt.detected_ns])
        claims.append(Claim(begin, max(begin, end), Phase.STALLED, begin))
    return claims


def _pair(attempt: Attempt, events: list[Event], notes: Notes) -> list[_Opened]:
    ends: dict[tuple[str, str], int] = {}
    begins: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.kind in (Kind.PHASE_BEGIN, Kind.PHASE_END):
            name = (event.writer, str(event.data.get("span")))
            if event.kind == Kind.PHASE_BEGIN:
                begins.setdefault(name, event)
            else:
                ends.setdefault(name, event.time_ns)
    if ends.keys() - begins.keys():
        notes.add(f"a phase of attempt {attempt.id} has an end and no begin")
    found = []
    for name, event in begins.items():
        phase = text(event.data, "phase") or Phase.UNATTRIBUTED
        if phase in RESERVED:
            notes.add(f"attempt {attempt.id} opened phase {phase} by name: taken for loop_other")
            phase = Phase.LOOP_OTHER
        lane = text(event.data, "lane") or MAIN
        found.append(_Opened(event.time_ns, ends.get(name), phase, lane))
    return found


def _over(attempt: Attempt, events: list[Event], span: _Opened) -> int:
    """Return the moment from which on the phase cannot have gone on."""
    interruption = attempt.interruption_ns
    if interruption is not None:
        # What begins after it is the trainer's own tidying up, while it still lives.
        late = interruption < span.begin_ns
        return max(span.begin_ns, attempt.last_ns or 0) if late else interruption
    if attempt.outcome is Outcome.SUCCESS and component_of(span.phase) != "shutdown":
        ended = session_end(events)
        if ended is not None and ended >= span.begin_ns:
            return ended
    return attempt.stop_ns


def _inner_end(span: _Opened, opened: list[_Opened], starts: list[int]) -> int | None:
    ends = [
        other.end_ns
        for other in opened
        if other.end_ns is not None
        and other.lane == span.lane
        and other.begin_ns <= span.begin_ns < other.end_ns
    ]
    at = bisect_left(starts, span.begin_ns)
    if span.lane == MAIN and at < len(starts):
        ends.append(starts[at])
    return min(ends, default=None)


def last_session(events: list[Event]) -> int:
    """Return when the rank's last Session started: a process may run several in turn."""
    return max((e.time_ns for e in events if e.kind == Kind.SESSION_STARTED), default=0)


def session_end(events: list[Event]) -> int | None:
    """Return when the rank's last Session ended, None if it never said so."""
    since = last_session(events)
    return next((time for time in _session_ends(events) if time >= since), None)


def _session_ends(events: list[Event], until: int | None = None) -> list[int]:
    """Return when Sessions ended, in order; with ``until`` only those that ended before."""
    times = (event.time_ns for event in events if event.kind == Kind.SESSION_ENDED)
    return sorted(time for time in times if until is None or time < until)
