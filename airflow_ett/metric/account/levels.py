"""Level 1: every nanosecond that is not effective goes by its position in the job's life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_ett.metric.account.stretches import booked
from airflow_ett.metric.clock.attempts import Attempt
from airflow_ett.metric.clock.endings import Outcome
from airflow_ett.metric.phases import Phase
from airflow_ett.metric.result import Booked
from airflow_ett.metric.timeline.trace import Stretch, Timeline

BUCKETS = ("effective", "start", "recovery", "steady", "shutdown")
_EFFECTIVE, _START, _RECOVERY, _STEADY, _SHUTDOWN = BUCKETS


@dataclass(frozen=True, slots=True)
class Recovered:
    """One recovery: which attempt was interrupted, for how long, and whether training advanced."""

    attempt: int
    ns: int = 0
    advanced: bool = False


class Levels:
    """The buckets, filled attempt by attempt.

    For attempt i, A is the end of its first step that passes the high-water mark, I its
    interruption; S is where shutdown begins. ``start`` lasts until the first A, I or S;
    ``recovery_i`` from I_i until the first of the next A, the next I, S; ``shutdown`` from S on;
    ``steady`` is the rest. ``booked`` is bucket -> what is booked to it; ``recoveries`` are the
    parts of ``recovery``.
    """

    def __init__(self) -> None:
        self.booked: dict[str, Booked] = {bucket: Counter() for bucket in BUCKETS}
        self.recoveries: list[Recovered] = []
        self._bucket = _START

    def copy(self) -> Levels:
        """Return the same, to go on with on its own."""
        other = Levels()
        other.booked = {bucket: part.copy() for bucket, part in self.booked.items()}
        other.recoveries = self.recoveries.copy()
        other._bucket = self._bucket
        return other

    def take(self, number: int, timeline: Timeline, excluded: Sequence[Stretch]) -> None:
        """Book the attempt ``number``."""
        attempt = timeline.attempt
        shut = attempt.stop_ns if attempt.followed else _shutdown(timeline)
        at = attempt.begin_ns
        for turn, advanced in _turns(timeline):
            if turn > shut:
                break
            self._book(booked(timeline, at, turn, excluded))
            at = turn
            self._turn(number, attempt, advanced=advanced)
        edge = max(at, min(shut, attempt.stop_ns))
        self._book(booked(timeline, at, edge, excluded))
        if attempt.outcome is Outcome.SUCCESS and not attempt.followed:
            self._end_recovery(advanced=True)
        if edge < attempt.stop_ns:
            self._bucket = _SHUTDOWN
            self._book(booked(timeline, edge, attempt.stop_ns, excluded))

    def _turn(self, number: int, attempt: Attempt, *, advanced: bool) -> None:
        self._end_recovery(advanced=advanced)
        self._bucket = _STEADY
        if not advanced and (attempt.followed or attempt.outcome is not Outcome.USER):
            self._bucket = _RECOVERY
            self.recoveries.append(Recovered(number))

    def _end_recovery(self, *, advanced: bool) -> None:
        if self._bucket == _RECOVERY:
            self.recoveries[-1] = replace(self.recoveries[-1], advanced=advanced)

    def _book(self, found: Booked) -> None:
        rest = 0
        for booking, ns in found.items():
            effective = booking.phase == Phase.TRAIN
            self.booked[_EFFECTIVE if effective else self._bucket][booking] += ns
            rest += 0 if effective else ns
        if self._bucket == _RECOVERY:
            last = self.recoveries[-1]
            self.recoveries[-1] = replace(last, ns=last.ns + rest)

    def as_dict(self) -> dict[str, int]:
        """Return bucket -> nanoseconds; they sum to the wall clock."""
        return {bucket: part.total() for bucket, part in self.booked.items()}


def _turns(timeline: Timeline) -> list[tuple[int, bool]]:
    """Return A (True) and I (False) of one attempt; an A after the interruption is none."""
    advanced, interrupted = advance(timeline), timeline.attempt.interruption_ns
    turns = []
    if advanced is not None and (interrupted is None or advanced <= interrupted):
        turns.append((advanced, True))
    if interrupted is not None:
        turns.append((interrupted, False))
    return turns


def advance(timeline: Timeline) -> int | None:
    """Return A, the end of the attempt's first step that passed the high-water mark.

    What rank 0 steps while another rank leads is not yet the job's.
    """
    end = timeline.walk.advance_ns
    return None if end is None else _within(max(end, timeline.lead_until_ns), timeline.attempt)


def _shutdown(last: Timeline) -> int:
    """Return S, or the job's end where there is none.

    S is the end of the last step of a last attempt that ended well or by a user's cancel; if it
    made no step, the moment at which its Session, or the user, ended it.
    """
    if last.attempt.outcome in (Outcome.SUCCESS, Outcome.USER):
        for time in (last.walk.last_step_ns, last.over_ns, last.attempt.interruption_ns):
            if time is not None:
                return _within(time, last.attempt)
    return last.attempt.stop_ns


def _within(time: int, attempt: Attempt) -> int:
    return max(attempt.begin_ns, min(time, attempt.stop_ns))
