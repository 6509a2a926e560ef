"""How an attempt ended, what cut it short, and when the job's clock stops."""

from __future__ import annotations

from enum import Enum

from airflow_ett.events import USER_CAUSES, Cause, Event, JobState, Kind
from airflow_ett.metric.clock.job import Job
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import text, whole

FRESH_NS = 30_000_000_000
"""A running job whose last sign of life is younger than this is taken to live on (agents touch
their heartbeat every 5 s)."""

SKEW_NS = 1_000_000_000
"""Schedulers tell time in whole seconds, so a smaller contradiction between clocks is none."""


class Outcome(Enum):
    """How an attempt ended."""

    LIVE = "live"
    SUCCESS = "success"
    USER = "user"
    FAILURE = "failure"


def verdict(evidence: Evidence) -> Event | None:
    """Return the launcher's first word that the attempt is over."""
    return next(iter(evidence.of(Kind.ATTEMPT_ENDED)), None)


def outcome(evidence: Evidence, job: Job, *, last: bool) -> tuple[Outcome, str | None]:
    """Return how the attempt ended, and the cause where it was no success.

    An attempt that another one follows ended, even if nobody said so: its cause is unknown.
    """
    ended = verdict(evidence)
    if ended is not None:
        cause = text(ended.data, "cause")
        if cause is None:
            return Outcome.SUCCESS, None
        return (Outcome.USER if cause in USER_CAUSES else Outcome.FAILURE), cause
    if not last:
        return Outcome.FAILURE, Cause.UNKNOWN.value
    if job.state == JobState.RUNNING:
        # One process may run several Sessions in turn.
        begun = max((e.time_ns for e in evidence.of(Kind.SESSION_STARTED)), default=0)
        ends = (e for e in evidence.of(Kind.SESSION_ENDED) if e.time_ns >= begun)
        done = any(text(event.data, "outcome") == "success" for event in ends)
        return (Outcome.SUCCESS if done else Outcome.LIVE), None
    if job.state == JobState.SUCCEEDED:
        return Outcome.SUCCESS, None
    if job.state == JobState.CANCELLED:
        return Outcome.USER, job.cause or Cause.USER_CANCELLED.value
    return Outcome.FAILURE, job.cause or Cause.UNKNOWN.value


def interruptions(evidence: Evidence, cancels: list[int], released_ns: int | None) -> list[int]:
    """Return what may have cut the attempt short: the earliest counts.

    The last sign of life is one of them; the scheduler's end stands in where no process gave any.
    A cancel counts when the trainer got it; the request's time stands in where no signal was seen.
    """
    failures = [event.time_ns for event in evidence.of(Kind.FAILURE) if _is_final(event, evidence)]
    exits = [event.time_ns for event in evidence.of(Kind.PROCESS_ENDED) if _failed(event)]
    signals = [event.time_ns for event in evidence.of(Kind.SIGNAL)] or cancels
    hangs = [begin for begin, end in stalls(evidence) if end is None]
    last = evidence.signs[1] if evidence.signs else released_ns
    return failures + exits + signals + hangs + ([] if last is None else [last])


def _is_final(failure: Event, evidence: Evidence) -> bool:
    """Say whether no other Session followed the failure in the same process."""
    rank = evidence.ranks.get(failure.rank or 0)
    return rank is None or failure.time_ns >= rank.last_session()


def _failed(event: Event) -> bool:
    return bool(event.data.get("exit_code") or event.data.get("signal"))


def stalls(evidence: Evidence) -> list[tuple[int, int | None]]:
    """Return begin and end of each stall a watchdog told; the end is None while it lasts.

    One of which only the begin was told is over where the main rank's steps go on.
    """
    found: dict[int, int | None] = {}
    for event in evidence.of(Kind.STALLED):
        begin, end = whole(event.data, "begin"), whole(event.data, "end")
        if begin is not None:
            ends = [time for time in (found.get(begin), end) if time is not None]
            found[begin] = max(ends, default=None)
    return [
        (begin, _stepped(evidence, begin) if end is None else end)
        for begin, end in sorted(found.items())
    ]


def _stepped(evidence: Evidence, begin_ns: int) -> int | None:
    """Return when steps went on after ``begin_ns``, None if they did not."""
    if evidence.main_rank is None:
        return None
    rows = evidence.ranks[evidence.main_rank].rows
    at = rows.before(begin_ns)
    if at and rows.row(at - 1).end_ns > begin_ns:
        return begin_ns
    return rows.begin_ns(at) if at < len(rows) else None


def job_end(
    last: Evidence,
    job: Job,
    released_ns: int | None,
    *,
    now_ns: int | None,
    last_sign_ns: int | None,
) -> int:
    """Return where the job's clock stands, or stopped.

    Ended: the scheduler's end, else the processes' last sign of life, else the detection; what the
    processes still did is never cut off. Alive: now, unless all signs of life are old.
    """
    ended = verdict(last)
    alive = last.signs[1] if last.signs else None
    if job.ended_ns is None:
        newest = max(job.newest_ns, alive or 0)
        now = newest if now_ns is None else max(now_ns, newest)
        sign = max(newest, last_sign_ns or 0)
        waiting = alive is None or ended is not None
        return now if waiting or now - sign <= FRESH_NS else sign
    if released_ns is None:
        detected = ended.time_ns if ended else job.ended_ns
        return detected if alive is None else alive
    return max(released_ns, alive or 0)
