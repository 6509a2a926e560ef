"""What an attempt that is over has left in its job's log, and what its try came to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_ett.events import AttemptId, Cause, Event, Kind
from airflow_ett.launch.history import History, Submission
from airflow_ett.launch.joblog import JobLog
from airflow_ett.launch.lastwords import describe, last_words
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.repetition import repeated
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.verdict import Sighting, Verdict, judge

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended; ``cause`` is None on success, ``cursor`` where the data position stands.

    ``repeated`` says that it failed where the attempt before it had, of the same error.
    """

    job: str
    cause: Cause | None
    message: str
    handle: str | None
    cursor: int | None
    checkpoint: str | None
    repeated: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for a trigger's event."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "cause": str(self.cause) if self.cause else None
        }


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended; ``cursor`` is where its data position stood, None if nobody knows."""

    attempt: AttemptId
    verdict: Verdict
    cursor: int | None


def examine(
    log: JobLog,
    submission: Submission,
    status: SchedulerStatus,
    gateway: Gateway,
    *,
    quote: bool = True,
) -> End:
    """Judge a submission's newest attempt, which is over, by all that was seen of it.

    With ``quote`` the last lines of its output are part of the evidence.
    """
    attempt, events = newest_attempt(log, submission)
    cursor = close_interval(log, submission)
    if cursor is None:
        cursor = _last_told(events)
    seen = Sighting(
        state=status.state,
        raw=status.raw,
        answered=status.answered,
        message=status.message,
        cancel_reason=submission.cancel_reason,
        cancel_text=submission.cancel_text,
        replies=log.replies(attempt),
        replicas=status.replicas,
        hosts=submission.hosts.get(attempt.scheduler_restart, ()),
        events=events,
    )
    verdict = judge(seen)
    if verdict.cause is not None and submission.handle is not None:
        node = verdict.evidence.get("node") or 0
        words = last_words(gateway, submission.handle, node, quote=quote)
        verdict = replace(verdict, evidence={**verdict.evidence, **words})
    if verdict.cause is not None and not status.answered:
        verdict = replace(verdict, evidence={**verdict.evidence, "seen": False})
    return End(attempt, verdict, cursor)


def conclude(job: OpenJob, history: History, last: Submission, *, late: bool = False) -> Outcome:
    """Return how a try ended whose newest submission is over.

    ``late``: it would have gone on, but for its deadline.
    """
    newest, record = job.newest(), job.log.cursor()
    cursor = last.cursor if last.cursor is not None or record is None else record.cursor
    again = last.cause is Cause.APPLICATION and repeated(history, committed_cursor(job, last))
    checkpoint = newest.uri if newest else None
    text = describe(job.log.key, last, late=late, repeated=again, checkpoint=checkpoint)
    return Outcome(
        job=job.log.key.id,
        cause=Cause.TIMEOUT if late else last.cause,
        message=job.log.redact(text),
        handle=last.handle,
        cursor=cursor,
        checkpoint=checkpoint,
        repeated=again,
    )


def _last_told(events: list[Event]) -> int | None:
    """Return the cursor at which the last Session ended, also where it never reached a batch."""
    ended = [event for event in events if event.kind == Kind.SESSION_ENDED]
    last = max(ended, key=lambda event: event.time_ns, default=None)
    cursor = last.data.get("cursor") if last else None
    return cursor if isinstance(cursor, int) else None


def newest_attempt(log: JobLog, submission: Submission) -> tuple[AttemptId, list[Event]]:
    """Return a submission's newest attempt and what its agents and trainers wrote."""
    events = log.submission_events(submission.number)
    known = [event.attempt for event in events if event.attempt]
    attempt = max([AttemptId(submission.number, submission.restart), *known])
    return attempt, [event for event in events if event.attempt == attempt]


def close_interval(log: JobLog, submission: Submission) -> int | None:
    """Write the interval that a killed trainer left open in the cursor file; return its cursor.

    The trainer's agent may have done so, too: it is the same event, and ingest keeps one. None is
    returned where the submission's trainer wrote no cursor.
    """
    record = log.cursor()
    if record is None or record.submission != submission.number:
        return None
    event = record.open_interval(log.key.id)
    if event is not None:
        log.copy(event)
    return record.cursor


def committed_cursor(job: OpenJob, last: Submission | None) -> int:
    """Return the cursor of the newest committed checkpoint: as seen, or as the trainers told.

    Where the launcher cannot see the checkpoints, or they have gone, the log still knows.
    """
    newest = job.newest()
    told = job.log.submission_events(last.number) if last else []
    cursors = [int(e.data["cursor"]) for e in told if e.kind == Kind.CHECKPOINT_COMMITTED]
    return max([newest.cursor if newest else 0, last.resume_cursor if last else 0, *cursors])
