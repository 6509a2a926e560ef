"""The job log as launchers use it: append, read, claim.

A job belongs to whoever holds its newest claim. Taking the next epoch makes every older holder a
stranger, who finds out by :meth:`JobLog.check` before each submit and cancel and then touches
nothing. A submission's intent is taken exclusively *before* the scheduler is asked, so that no two
processes ever make the same submission and none is forgotten.

Every method that reads or writes raises :class:`JobLogError` while the log cannot be reached. The
caller then goes on watching and neither submits nor cancels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_ett.events import AttemptId, CursorRecord, Event, JobKey


@dataclass(frozen=True, slots=True)
class Claim:
    """Ownership of a job since ``epoch``, taken by one try in one process."""

    epoch: int
    try_number: int
    max_tries: int
    mode: str


class JobLog(Protocol):
    """What a launcher needs of a job's log, wherever it lies."""

    @property
    def key(self) -> JobKey:
        """The job."""

    @property
    def place(self) -> str:
        """The folder or address of the job, as trainers are told and people are shown it."""

    def redact(self, value: Any) -> Any:
        """Return a text, or JSON data, without secrets.

        Evidence passes it on its way into the log, and so should whatever of a trainer's words is
        shown or raised.
        """

    def claim(
        self, *, try_number: int, max_tries: int, mode: str, after: int | None = None
    ) -> Claim:
        """Take the next epoch.

        With ``after``, only if nobody has claimed since that epoch; else :class:`Fenced` is raised
        and nothing has happened.
        """

    def newest(self) -> int:
        """Return the newest epoch, 0 before the first claim."""

    def check(self, claim: Claim) -> None:
        """Raise :class:`Fenced` when a newer claim exists, :class:`JobLogError` when none does."""

    def intend(self, claim: Claim, submission: int, fields: Mapping[str, Any]) -> Event:
        """Take a submission's number exclusively and log the intent.

        Raises :class:`Fenced` when the claim is old or another process made this submission.
        """

    def append(
        self,
        kind: str,
        data: Mapping[str, Any] | None = None,
        *,
        time_ns: int | None = None,
        attempt: AttemptId | None = None,
    ) -> Event:
        """Append a launcher event; needs a claim."""

    def copy(self, event: Event) -> None:
        """Append another writer's event as it is."""

    def launcher_events(self) -> list[Event]:
        """Return what all launchers of this job wrote, in order of epochs."""

    def intents(self) -> dict[int, dict[str, Any]]:
        """Return every submission's intent by number, logged or not."""

    def submission_events(self, submission: int) -> list[Event]:
        """Return what agents and trainers of a submission wrote."""

    def replies(self, attempt: AttemptId) -> list[dict[str, Any]]:
        """Return how each node of an attempt ended, as its agent told."""

    def replied(self, submission: int, restart: int) -> bool:
        """Return whether an agent has told how its node ended; False where nobody knows."""

    def cursor(self) -> CursorRecord | None:
        """Return where rank 0 stands in the data, None where none can be read."""

    def heartbeat_ns(self) -> int | None:
        """Return when an agent of the job last lived, in UTC nanoseconds; None where none did."""

    def shown(self, submission: int) -> int:
        """Return up to which offset the submission's output was shown to people."""

    def note_shown(self, submission: int, offset: int) -> None:
        """Keep that offset for whoever goes on."""
