"""What an attempt that is over has left in its job's log, and what its try came to."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import AttemptId, Cause, Event, read_cursor
from airflow_ett.launch.history import Submission
from airflow_ett.launch.joblog import RunDirLog


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


def newest_attempt(log: RunDirLog, submission: Submission) -> tuple[AttemptId, list[Event]]:
    """Return a submission's newest attempt and what its agents and trainers wrote."""
    events = log.submission_events(submission.number)
    known = [event.attempt for event in events if event.attempt]
    attempt = max([AttemptId(submission.number, submission.restart), *known])
    return attempt, [event for event in events if event.attempt == attempt]


def close_interval(log: RunDirLog, submission: Submission) -> None:
    """Write the interval that a killed trainer left open in the cursor file.

    The trainer's agent may have done so, too: it is the same event, and ingest keeps one.
    """
    with contextlib.suppress(OSError):
        record = read_cursor(log.run_dir.cursor)
        if record is not None and record.submission == submission.number:
            event = record.open_interval(log.key.id)
            if event is not None:
                log.copy(event)


def last_heartbeat_ns(log: RunDirLog) -> int:
    """Return when an agent of the job last gave a sign of life, 0 if never."""
    files = log.run_dir.nodes.glob("heartbeat-*")
    return max((file.stat().st_mtime_ns for file in files), default=0)
