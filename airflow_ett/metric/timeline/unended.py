"""Where a phase ends that was never closed."""

from __future__ import annotations

from airflow_ett.events import Kind
from airflow_ett.metric.clock.attempts import Attempt
from airflow_ett.metric.clock.endings import Outcome, stalls
from airflow_ett.metric.evidence.attempt import Rank
from airflow_ett.metric.evidence.fields import FOREVER, Notes
from airflow_ett.metric.evidence.lanes import MAIN, Claim, Opened
from airflow_ett.metric.phases import COMPONENTS, Phase


def unended(attempt: Attempt, rank: Rank, notes: Notes) -> list[tuple[str, Claim]]:
    """Return lane and claim of each phase of the rank that has no end.

    It ends with the phase around it, with the next interval (a Session closes intervals at phase
    edges), with its Session where another one follows, or with the attempt's interruption,
    whichever comes first.
    """
    found = []
    for phase in rank.lanes.open.values():
        end = _turn(rank, phase)
        if end is None:
            end = _over(attempt, rank, phase)
            inner = _inner_end(rank, phase)
            if inner is not None and inner < end:
                end = inner
                notes.add(f"phase {phase.phase} of attempt {attempt.id} has no end")
        if end < phase.begin_ns:
            notes.add(f"phase {phase.phase} of attempt {attempt.id} ends before it begins")
        else:
            claim = Claim(phase.begin_ns, end, phase.phase, phase.begin_ns)
            found.append((phase.lane, claim))
    return found


def stalled(attempt: Attempt) -> tuple[frozenset[Claim], list[Claim]]:
    """Return the stalls that a watchdog told: those that have ended, and those that have not.

    One still open lasts until something ended it.
    """
    over, still = set(), []
    for begin, end in stalls(attempt.evidence):
        if end is not None:
            over.add(Claim(begin, max(begin, end), Phase.STALLED, begin))
            continue
        enders = [
            event.time_ns
            for event in attempt.evidence.of(Kind.FAILURE, Kind.SIGNAL, Kind.PROCESS_ENDED)
            if event.time_ns > begin
        ]
        end = min([*enders, attempt.detected_ns])
        still.append(Claim(begin, max(begin, end), Phase.STALLED, begin))
    return frozenset(over), still


def _turn(rank: Rank, phase: Opened) -> int | None:
    """Return when its Session ended, if another one followed in the same process."""
    if phase.lane != MAIN:
        return None
    last = rank.last_session()
    return next((end for end in rank.session_ends() if phase.begin_ns <= end < last), None)


def _over(attempt: Attempt, rank: Rank, phase: Opened) -> int:
    """Return the moment from which on the phase cannot have gone on."""
    interruption = attempt.interruption_ns
    if interruption is not None:
        # What begins after it is the trainer's own tidying up, while it still lives.
        late = interruption < phase.begin_ns
        return max(phase.begin_ns, attempt.last_ns or 0) if late else interruption
    if attempt.outcome is Outcome.SUCCESS and COMPONENTS.of(phase.phase) != "shutdown":
        ended = rank.session_end()
        if ended is not None and ended >= phase.begin_ns:
            return ended
    return attempt.stop_ns


def _inner_end(rank: Rank, phase: Opened) -> int | None:
    closed = rank.lanes.closed.get(phase.lane)
    around = closed.around(phase.begin_ns) if closed else None
    if phase.lane != MAIN:
        return around
    step = rank.rows.begin_ns(rank.rows.before(phase.begin_ns))
    ends = [end for end in (around, step) if end is not None and end != FOREVER]
    return min(ends, default=None)
