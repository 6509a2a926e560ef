"""Events of a job that come over the network: each line is judged, good ones are stored."""

import logging
from dataclasses import dataclass

from fastapi import HTTPException
from pydantic import BaseModel, Field

from airflow_ett.errors import EventLogError, TokenError
from airflow_ett.events import Event, JobKey, Kind, decode
from airflow_ett.storage.access import MOST_LINE, MOST_LINES, may_append
from airflow_ett.storage.tokens import Grant
from airflow_ett.store.append import Appender
from airflow_ett.store.storable import refusal

_PROBLEM_LENGTH = 300
_log = logging.getLogger(__name__)


class Rejected(BaseModel):
    """A line that was not stored, and why."""

    line: int = Field(description="Number of the line, from 1.")
    problem: str


class Appended(BaseModel):
    """What became of the lines of a request."""

    job: str
    new: int = Field(description="Events that are stored now.")
    known: int = Field(description="Events whose number was stored before.")
    rejected: list[Rejected]


@dataclass(frozen=True, slots=True)
class Lines:
    """What a body's lines are."""

    events: list[Event]
    rejected: list[Rejected]


def read_lines(body: bytes, grant: Grant) -> Lines:
    """Judge a body's lines; empty ones are skipped.

    Raises ``HTTPException`` 413 where there are too many, :class:`TokenError` where the token
    allows none of them.
    """
    events: list[Event] = []
    rejected: list[Rejected] = []
    forbidden = 0
    lines = body.split(b"\n")
    if len(lines) > MOST_LINES + 1:
        raise HTTPException(413, f"More than {MOST_LINES} lines: send fewer at once.")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        event, problem = _judged(line)
        if event is not None and (denial := _denial(event, grant)):
            forbidden += 1
            event, problem = None, denial
        if event is None:
            rejected.append(Rejected(line=number, problem=problem[:_PROBLEM_LENGTH]))
        else:
            events.append(event)
    if forbidden and not events:
        raise TokenError(rejected[-1].problem, forbidden=True)
    return Lines(events, rejected)


def append(appender: Appender, job: str, lines: Lines) -> Appended:
    """Store the good lines and say what became of all of them.

    Raises :class:`StoreError`, :class:`EventLogError` where the database refuses one of them.
    """
    stored = appender.append(job, lines.events)
    if stored.failure is not None:
        _log.warning("ETT%% API: %s", stored.failure)
    return Appended(job=job, new=stored.new, known=stored.known, rejected=lines.rejected)


def _judged(line: bytes) -> tuple[Event | None, str]:
    """Return the event that a line is, or what is wrong with it."""
    if len(line) > MOST_LINE:
        return None, f"it has more than {MOST_LINE} bytes"
    try:
        event = decode(line)
    except EventLogError as error:
        return None, str(error)
    problem = refusal(event)
    return (None, problem) if problem else (event, "")


def _denial(event: Event, grant: Grant) -> str | None:
    if event.job != grant.job:
        return f"The event is of job {event.job:.40}, the token for {grant.job} alone."
    if event.kind == Kind.JOB_OPENED and _is_of_another(event):
        return "Its key is not the job's: the DAG, run and task of a job make its id."
    if not may_append(grant.role, event.writer, event.kind):
        what = f"{event.kind:.40} of {event.writer:.40}"
        return f"A trainer's token takes no {what}: that is a launcher's to tell."
    return None


def _is_of_another(event: Event) -> bool:
    """Return whether an event says that its job is of a DAG, run or task that it is not of."""
    key = event.data.get("key")
    if not key or not isinstance(key, dict):
        return False
    try:
        return JobKey(**key).id != event.job
    except TypeError:
        return True
