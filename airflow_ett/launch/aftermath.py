"""What an attempt that is over has left in its job's log, and what its try came to."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_ett.checkpoints import newest_committed
from airflow_ett.errors import LaunchError
from airflow_ett.events import AttemptId, Cause, Event, JobKey, Kind
from airflow_ett.launch.history import Submission
from airflow_ett.launch.joblog import JobLog
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.verdict import Sighting, Verdict, judge

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway

_LAST_LINES = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended; ``cause`` is None on success, ``cursor`` where the data position stands."""

    job: str
    cause: Cause | None
    message: str
    handle: str | None
    cursor: int | None
    checkpoint: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for a trigger's event."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "cause": str(self.cause) if self.cause else None
        }


def examine(
    log: JobLog, submission: Submission, status: SchedulerStatus
) -> tuple[Verdict, AttemptId]:
    """Judge a submission's newest attempt, which is over, by all that was seen of it."""
    attempt, events = newest_attempt(log, submission)
    close_interval(log, submission)
    seen = Sighting(
        state=status.state,
        raw=status.raw,
        message=status.message,
        cancel_reason=submission.cancel_reason,
        cancel_text=submission.cancel_text,
        replies=log.replies(attempt),
        replicas=status.replicas,
        events=events,
    )
    return judge(seen), attempt


def conclude(job: OpenJob, last: Submission, gateway: Gateway) -> Outcome:
    """Return how a try ended whose newest submission is over."""
    newest = newest_committed(job.checkpoints)
    cursor = job.log.cursor()
    lines: list[str] = []
    if last.cause is not None and last.handle is not None:
        with contextlib.suppress(LaunchError):
            lines = gateway.last_lines(last.handle, 0, _LAST_LINES)
    return Outcome(
        job=job.log.key.id,
        cause=last.cause,
        message=job.log.redact(describe(job.log.key, last, lines)),
        handle=last.handle,
        cursor=cursor.cursor if cursor else None,
        checkpoint=newest.uri if newest else None,
    )


def describe(job: JobKey, submission: Submission, lines: Sequence[str]) -> str:
    """Say what happened to which job and submission, with the last lines that rank 0 printed."""
    where = f"Job {job}, submission {submission.number} ({submission.handle})"
    if submission.cause is None:
        return f"{where}: {submission.evidence}"
    tail = "".join(f"\n  {line}" for line in lines)
    words = f"{where} ended, cause {submission.cause}: {submission.evidence}"
    return f"{words}\nLast lines of rank 0:{tail}" if tail else words


def newest_attempt(log: JobLog, submission: Submission) -> tuple[AttemptId, list[Event]]:
    """Return a submission's newest attempt and what its agents and trainers wrote."""
    events = log.submission_events(submission.number)
    known = [event.attempt for event in events if event.attempt]
    attempt = max([AttemptId(submission.number, submission.restart), *known])
    return attempt, [event for event in events if event.attempt == attempt]


def close_interval(log: JobLog, submission: Submission) -> None:
    """Write the interval that a killed trainer left open in the cursor file.

    The trainer's agent may have done so, too: it is the same event, and ingest keeps one.
    """
    record = log.cursor()
    if record is not None and record.submission == submission.number:
        event = record.open_interval(log.key.id)
        if event is not None:
            log.copy(event)


def committed_cursor(log: JobLog, checkpoints: str, last: Submission | None) -> int:
    """Return the cursor of the newest committed checkpoint: as seen, or as the trainers told.

    Where the launcher cannot see the checkpoints, or they have gone, the log still knows.
    """
    newest = newest_committed(checkpoints)
    told = log.submission_events(last.number) if last else []
    cursors = [int(e.data["cursor"]) for e in told if e.kind == Kind.CHECKPOINT_COMMITTED]
    return max([newest.cursor if newest else 0, last.resume_cursor if last else 0, *cursors])
