"""Level 1: every nanosecond that is not effective goes by its position in the job's life."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from airflow_ett.metric.attempts import Attempt
from airflow_ett.metric.endings import Outcome
from airflow_ett.metric.phases import Phase
from airflow_ett.metric.result import Recovery, Span
from airflow_ett.metric.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Levels:
    """The five buckets; ``recoveries`` are the parts of ``recovery``."""

    effective_ns: int
    start_ns: int
    recoveries: tuple[Recovery, ...]
    steady_ns: int
    shutdown_ns: int

    @property
    def recovery_ns(self) -> int:
        """Sum of all times to recover."""
        return sum(recovery.ns for recovery in self.recoveries)

    def as_dict(self) -> dict[str, int]:
        """Return bucket -> nanoseconds; they sum to the wall clock."""
        return {
            "effective": self.effective_ns,
            "start": self.start_ns,
            "recovery": self.recovery_ns,
            "steady": self.steady_ns,
            "shutdown": self.shutdown_ns,
        }


def position(timelines: list[Timeline], begin_ns: int, end_ns: int) -> Levels:
    """Split the job's wall clock by position (DESIGN's A, I and S).

    ``start`` lasts until the first A, I or S; ``recovery_i`` from I_i until the first of the
    next A, the next I, S; ``shutdown`` from S on; ``steady`` is the rest.
    """
    effective = _Effective(span for timeline in timelines for span in timeline.main)
    shut = _shutdown(timelines, end_ns)
    turns = [(advance(timeline), timeline.attempt.interruption_ns) for timeline in timelines]
    started = min([time for pair in turns for time in pair if time is not None] + [shut])
    recoveries = [
        _recovery(at, timelines, turns, shut, effective)
        for at, timeline in enumerate(timelines)
        if _recovers(timeline.attempt, last=at == len(timelines) - 1)
    ]
    start = effective.rest(begin_ns, started)
    shutdown = effective.rest(shut, end_ns)
    rest = effective.rest(begin_ns, end_ns)
    return Levels(
        effective_ns=end_ns - begin_ns - rest,
        start_ns=start,
        recoveries=tuple(recoveries),
        steady_ns=rest - start - shutdown - sum(recovery.ns for recovery in recoveries),
        shutdown_ns=shutdown,
    )


def advance(timeline: Timeline) -> int | None:
    """Return A, the end of the attempt's first step that passed the high-water mark."""
    end = timeline.walk.advance_ns
    return None if end is None else _within(end, timeline.attempt)


def _recovers(attempt: Attempt, *, last: bool) -> bool:
    """Say whether a recovery follows: after each interruption but a user's cancel for good."""
    return attempt.interruption_ns is not None and not (last and attempt.outcome is Outcome.USER)


def _shutdown(timelines: list[Timeline], end_ns: int) -> int:
    """Return S, or the job's end where there is none.

    S is the end of the last step of a last attempt that ended well or by a user's cancel; if it
    made no step, the moment at which its Session, or the user, ended it.
    """
    if not timelines:
        return end_ns
    last = timelines[-1]
    if last.attempt.outcome not in (Outcome.SUCCESS, Outcome.USER):
        return end_ns
    for time in (last.walk.last_step_ns, last.over_ns, last.attempt.interruption_ns):
        if time is not None:
            return _within(time, last.attempt)
    return end_ns


def _recovery(
    at: int,
    timelines: list[Timeline],
    turns: list[tuple[int | None, int | None]],
    shut: int,
    effective: _Effective,
) -> Recovery:
    attempt = timelines[at].attempt
    begin = attempt.interruption_ns or 0
    advances = [time for time, _ in turns[at + 1 :] if time is not None]
    interruptions = [time for _, time in turns[at + 1 :] if time is not None]
    end = min([*advances, *interruptions, shut])
    advanced = bool(advances) and min(advances) == end
    finished = timelines[-1].attempt.outcome is Outcome.SUCCESS and end == shut
    return Recovery(effective.rest(begin, end), advanced or finished, attempt.cause or "")


def _within(time: int, attempt: Attempt) -> int:
    return max(attempt.begin_ns, min(time, attempt.stop_ns))


class _Effective:
    """The effective spans, and how much of a stretch of time is none."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = [span for span in spans if span.phase == Phase.TRAIN]
        self._begins = [span.begin_ns for span in self._spans]
        lengths = (span.end_ns - span.begin_ns for span in self._spans)
        self._before = list(accumulate(lengths, initial=0))

    def rest(self, begin: int, end: int) -> int:
        """Return the nanoseconds of ``[begin, end)`` that are not effective."""
        return max(0, end - begin) - max(0, self._until(end) - self._until(begin))

    def _until(self, time: int) -> int:
        at = bisect_right(self._begins, time)
        if not at:
            return 0
        return self._before[at - 1] + min(time, self._spans[at - 1].end_ns) - self._begins[at - 1]
