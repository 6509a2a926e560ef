"""Names for the time of an attempt that no phase and no interval covers."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_ett.metric.clock.attempts import Attempt
from airflow_ett.metric.clock.endings import SKEW_NS, Outcome
from airflow_ett.metric.clock.job import Job
from airflow_ett.metric.evidence.fields import Notes
from airflow_ett.metric.evidence.lanes import Claim
from airflow_ett.metric.phases import Phase

_OUTERMOST = -1


@dataclass(frozen=True, slots=True)
class Marks:
    """Where the leading rank's life turns: session start, first batch request, end of training."""

    session_ns: int | None
    loop_ns: int | None
    over_ns: int | None


def gaps(attempt: Attempt, job: Job, marks: Marks, notes: Notes) -> list[Claim]:
    """Return claims that cover the whole attempt and lose against any evidence.

    The order is queue, hardware_setup, launcher_init, trainer_init, loop (unattributed), then what
    follows the end. A turn that is not known lies where the next one does; a turn that lies behind
    a later one is moved before it, so that no phase is ever negative.
    """
    allocated, started = _starts(attempt, job, notes)
    turns: list[tuple[Phase, int | None]] = [
        (Phase.QUEUE, attempt.begin_ns),
        (Phase.HARDWARE_SETUP, allocated),
    ]
    if _silent(attempt, job):
        turns.append((Phase.UNATTRIBUTED, started))
    else:
        turns += [
            (Phase.LAUNCHER_INIT, started),
            (Phase.TRAINER_INIT, marks.session_ns),
            (Phase.UNATTRIBUTED, marks.loop_ns),
        ]
    if attempt.interruption_ns is not None:
        by_user = attempt.outcome is Outcome.USER
        closing = Phase.SHUTDOWN if by_user else Phase.FAILURE_DETECTION
        over = _gone(attempt) if by_user and attempt.followed else attempt.detected_ns
        turns += [(closing, attempt.interruption_ns), (Phase.RETRY_WAIT, over)]
    elif marks.over_ns is not None:
        turns.append((Phase.SHUTDOWN, marks.over_ns))
    return _between(turns, attempt)


def _gone(attempt: Attempt) -> int | None:
    """Return when nothing of the attempt was there any more; the interruption if nothing ever was.

    A user's restart is waited for from here on: that is no shutting down.
    """
    known = (attempt.last_ns, attempt.released_ns, attempt.interruption_ns)
    return max((time for time in known if time is not None), default=None)


def _between(turns: list[tuple[Phase, int | None]], attempt: Attempt) -> list[Claim]:
    claims: list[Claim] = []
    end = attempt.stop_ns
    for phase, time in reversed(turns):
        begin = end if time is None else max(attempt.begin_ns, min(time, end))
        claims.append(Claim(begin, end, phase, _OUTERMOST))
        end = begin
    return claims


def _starts(attempt: Attempt, job: Job, notes: Notes) -> tuple[int | None, int | None]:
    """Return when resources were allocated and when the first process started, where known."""
    started = attempt.first_ns
    if started is None and _silent(attempt, job):
        started = attempt.running_ns
        if started is None and attempt.outcome is Outcome.SUCCESS:
            started = attempt.allocated_ns or attempt.begin_ns
    allocated = attempt.allocated_ns
    _note_negative(attempt, started, notes)
    if allocated is None:
        known = [time for time in (attempt.running_ns, started) if time is not None]
        allocated = attempt.begin_ns if job.local else min(known, default=None)
        if not job.local and attempt.running_ns is None and (started or 0) > attempt.begin_ns:
            notes.add(
                f"allocation time of attempt {attempt.id} unknown: all the time before its first "
                "process is booked to queue"
            )
    return allocated, started


def _note_negative(attempt: Attempt, started: int | None, notes: Notes) -> None:
    allocated, first = attempt.allocated_ns, not any(attempt.id[1:])
    if allocated is None:
        return
    if (started is not None and allocated > started + SKEW_NS) or (
        first and allocated < attempt.begin_ns - SKEW_NS
    ):
        notes.add(
            f"attempt {attempt.id} was allocated before its submission or after its first process, "
            "as the scheduler tells it: clocks disagree"
        )


def _silent(attempt: Attempt, job: Job) -> bool:
    """Say whether nothing of ours ran in the process, so that its life cannot be told apart."""
    if attempt.first_ns is not None:
        return not job.has_trainer and job.ended_ns is not None
    gone = attempt.running_ns is not None and attempt.outcome is not Outcome.LIVE
    return gone or not job.has_trainer
