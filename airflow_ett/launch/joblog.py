"""The job log as the launcher uses it: append, read, claim.

A job belongs to whoever holds its newest claim. Claims are files ``launcher/claims/<epoch>.json``,
created exclusively; taking the next epoch makes every older holder a stranger, who finds out by
:meth:`RunDirLog.check` before each submit and cancel and then touches nothing. A submission's
intent is a file ``launcher/submissions/<number>.json``, created exclusively *before* the scheduler
is asked, so that no two processes ever make the same submission and none is forgotten.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import AttemptId, Event, JobKey, Kind, LogWriter, RunDir, read_log
from airflow_ett.events.exclusive import draft, link


@dataclass(frozen=True, slots=True)
class Claim:
    """Ownership of a job since ``epoch``, taken by one try in one process."""

    epoch: int
    try_number: int
    max_tries: int
    mode: str


@contextlib.contextmanager
def _reachable(key: JobKey) -> Iterator[None]:
    """Turn I/O errors into one that says which job's log is away and which option is at fault."""
    try:
        yield
    except OSError as error:
        raise JobLogError(
            f"The log of job {key} cannot be used: {error}. Check [ett] run_root "
            "(it must be writable for workers, triggerers and trainers alike)."
        ) from error


def _as_it_is(value: Any) -> Any:
    return value


class RunDirLog:
    """The job log in a run directory on storage that launcher and trainers share.

    ``redact`` returns a text, or JSON data, without secrets: evidence passes it on its way into the
    log, and so should whatever of a trainer's words is shown or raised.
    """

    def __init__(
        self, run_dir: RunDir, key: JobKey, *, redact: Callable[[Any], Any] = _as_it_is
    ) -> None:
        self.run_dir = run_dir
        self.key = key
        self.redact = redact
        self._writer: LogWriter | None = None

    def claim(
        self, *, try_number: int, max_tries: int, mode: str, after: int | None = None
    ) -> Claim:
        """Take the next epoch and open a log file of its own.

        With ``after``, only if nobody has claimed since that epoch; else :class:`Fenced` is raised
        and nothing has happened. Raises :class:`JobLogError` when the run directory cannot be used.
        """
        with _reachable(self.key):
            owner = f"{socket.gethostname()}:{os.getpid()}"
            content = {"owner": owner, "try": try_number, "mode": mode}
            epoch = (self.newest() if after is None else after) + 1
            while not _create(self._claims / f"{epoch:08d}.json", content):
                if after is not None:
                    raise Fenced(f"Job {self.key} was claimed by another owner meanwhile.")
                epoch += 1
            self._writer = LogWriter(
                self.run_dir.launcher / f"e{epoch:08d}.jsonl",
                job=self.key.id,
                writer=f"launcher-{epoch}",
            )
            if epoch == 1:
                self.run_dir.nodes.mkdir(exist_ok=True)
                self.run_dir.replies.mkdir(exist_ok=True)
        self.append(
            Kind.CLAIMED,
            {
                "epoch": epoch,
                "owner": owner,
                "try": try_number,
                "max_tries": max_tries,
                "mode": mode,
            },
        )
        return Claim(epoch, try_number, max_tries, mode)

    def check(self, claim: Claim) -> None:
        """Raise :class:`Fenced` when a newer claim exists, :class:`JobLogError` when none does."""
        with _reachable(self.key):
            newest = self.newest()
        if newest < claim.epoch:
            raise JobLogError(
                f"The log of job {self.key} has lost claim {claim.epoch}: is [ett] run_root away, "
                f"or was {self.run_dir.path} removed?"
            )
        if newest > claim.epoch:
            raise Fenced(
                f"Job {self.key} is watched by a newer owner (claim {newest}, this one is "
                f"{claim.epoch}); stopped without touching the training."
            )

    def intend(self, claim: Claim, submission: int, fields: Mapping[str, Any]) -> Event:
        """Create the submission's intent exclusively and log it.

        Raises :class:`Fenced` when the claim is old or another process made this submission.
        """
        self.check(claim)
        with _reachable(self.key):
            path = self.run_dir.launcher / "submissions" / f"{submission:04d}.json"
            if not _create(path, {"epoch": claim.epoch, **fields}):
                raise Fenced(f"Submission {submission} of job {self.key} is being made elsewhere.")
        return self.append(Kind.SUBMIT_INTENDED, {"submission": submission, **fields})

    def append(
        self,
        kind: str,
        data: Mapping[str, Any] | None = None,
        *,
        time_ns: int | None = None,
        attempt: AttemptId | None = None,
    ) -> Event:
        """Append a launcher event; needs a claim.

        Raises :class:`JobLogError` when the run directory cannot be used.
        """
        if data and "evidence" in data:
            data = {**data, "evidence": self.redact(data["evidence"])}
        with _reachable(self.key):
            return self._claimed().append(kind, data, time_ns=time_ns, attempt=attempt)

    def copy(self, event: Event) -> None:
        """Append another writer's event as it is."""
        with _reachable(self.key):
            self._claimed().copy(event)

    def launcher_events(self) -> list[Event]:
        """Return what all launchers of this job wrote, in order of epochs.

        Raises :class:`JobLogError` when the run directory cannot be used.
        """
        with _reachable(self.key):
            paths = sorted(self.run_dir.launcher.glob("e*.jsonl"))
            return [event for path in paths for event in read_log(path).events]

    def intents(self) -> dict[int, dict[str, Any]]:
        """Return every submission's intent by number, logged or not.

        Raises :class:`JobLogError` when the run directory cannot be used.
        """
        with _reachable(self.key):
            paths = sorted((self.run_dir.launcher / "submissions").glob("*.json"))
            return {int(path.stem): json.loads(path.read_bytes()) for path in paths}

    def submission_events(self, submission: int) -> list[Event]:
        """Return what agents and trainers of a submission wrote.

        Raises :class:`JobLogError` when the run directory cannot be used.
        """
        with _reachable(self.key):
            return [
                event
                for path in self.run_dir.logs()
                if path.parent == self.run_dir.nodes
                for event in read_log(path).events
                if event.attempt is not None and event.attempt.submission == submission
            ]

    def replies(self, attempt: AttemptId) -> list[dict[str, Any]]:
        """Return how each node of an attempt ended, as its agent told. Torn files are skipped."""
        replies = []
        for path in sorted(self.run_dir.replies.glob(f"{attempt}-n*.json")):
            with contextlib.suppress(OSError, ValueError):
                replies.append(json.loads(path.read_bytes()))
        return replies

    @property
    def _claims(self) -> Path:
        return self.run_dir.launcher / "claims"

    def newest(self) -> int:
        """Return the newest epoch, 0 before the first claim."""
        try:
            return max((int(path.stem) for path in self._claims.iterdir()), default=0)
        except FileNotFoundError:
            return 0

    def _claimed(self) -> LogWriter:
        if self._writer is None:
            raise JobLogError(f"Job {self.key} was not claimed before its log was written.")
        return self._writer


def _create(path: Path, content: Mapping[str, Any]) -> bool:
    """Create ``path`` whole and exclusively; False when it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft(path.parent.parent, json.dumps(content).encode()) as finished:
        return link(finished, path)
