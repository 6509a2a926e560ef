"""The job log in a run directory: on storage that launchers and trainers share.

::

    launcher/claims/<epoch>.json         one per claim, created exclusively
    launcher/submissions/<number>.json   one per intent, created exclusively
    launcher/e<epoch>.jsonl              what the holder of a claim has written
    launcher/stream-<number>             how far a submission's output was shown
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import (
    AttemptId,
    CursorRecord,
    Event,
    JobKey,
    Kind,
    LogWriter,
    RunDir,
    read_log,
)
from airflow_ett.events.exclusive import draft, freshen, link
from airflow_ett.launch.joblog import Claim


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
    """A :class:`airflow_ett.launch.joblog.JobLog` in a run directory.

    ``redact`` returns a text, or JSON data, without secrets.
    """

    def __init__(
        self, run_dir: RunDir, key: JobKey, *, redact: Callable[[Any], Any] = _as_it_is
    ) -> None:
        self.run_dir = run_dir
        self.key = key
        self.place = str(run_dir.path)
        self._redact = redact
        self._writer: LogWriter | None = None

    def redact(self, value: Any) -> Any:
        """Return a text, or JSON data, without secrets."""
        return self._redact(value)

    def claim(
        self, *, try_number: int, max_tries: int, mode: str, after: int | None = None
    ) -> Claim:
        """Take the next epoch and open a log file of its own."""
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
            freshen(self._claims)
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
        """Create the submission's intent exclusively and log it."""
        self.check(claim)
        with _reachable(self.key):
            path = self._submissions / f"{submission:04d}.json"
            made = _create(path, {"epoch": claim.epoch, **fields})
            if not (made or self._unlogged(path, claim)):
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
        """Append a launcher event; needs a claim."""
        if data and "evidence" in data:
            data = {**data, "evidence": self.redact(data["evidence"])}
        with _reachable(self.key):
            return self._claimed().append(kind, data, time_ns=time_ns, attempt=attempt)

    def copy(self, event: Event) -> None:
        """Append another writer's event as it is."""
        with _reachable(self.key):
            self._claimed().copy(event)

    def launcher_events(self) -> list[Event]:
        """Return what all launchers of this job wrote, in order of epochs."""
        with _reachable(self.key):
            freshen(self.run_dir.launcher)
            paths = _listed(self.run_dir.launcher, "e", ".jsonl")
            return [event for path in paths for event in read_log(path).events]

    def intents(self) -> dict[int, dict[str, Any]]:
        """Return every submission's intent by number, logged or not."""
        with _reachable(self.key):
            freshen(self._submissions)
            paths = _listed(self._submissions, "", ".json")
            return {int(path.stem): json.loads(path.read_bytes()) for path in paths}

    def submission_events(self, submission: int) -> list[Event]:
        """Return what agents and trainers of a submission wrote."""
        with _reachable(self.key):
            freshen(self.run_dir.nodes)
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
        with _reachable(self.key):
            freshen(self.run_dir.replies)
            for path in _listed(self.run_dir.replies, f"{attempt}-n", ".json"):
                with contextlib.suppress(ValueError):
                    replies.append(json.loads(path.read_bytes()))
        return replies

    def replied(self, submission: int, restart: int) -> bool:
        """Return whether an agent has told how its node ended; False where nobody knows."""
        with contextlib.suppress(OSError):
            return bool(_listed(self.run_dir.replies, f"{submission}.{restart}.", ".json"))
        return False

    def cursor(self) -> CursorRecord | None:
        """Return where rank 0 stands in the data, None where none can be read."""
        return self.run_dir.last_cursor()

    def heartbeat_ns(self) -> int | None:
        """Return when an agent of the job last lived, in UTC nanoseconds; None where none did."""
        with _reachable(self.key):
            return self.run_dir.heartbeat_ns()

    def shown(self, submission: int) -> int:
        """Return up to which offset the submission's output was shown to people."""
        with _reachable(self.key):
            mark = self._mark(submission)
            text = mark.read_text() if mark.exists() else ""
            return int(text) if text.isdecimal() else 0

    def note_shown(self, submission: int, offset: int) -> None:
        """Keep that offset for whoever goes on."""
        with _reachable(self.key):
            written = self._mark(submission).with_suffix(".draft")
            written.write_text(str(offset))
            written.replace(self._mark(submission))

    def newest(self) -> int:
        """Return the newest epoch, 0 before the first claim."""
        return max((int(path.stem) for path in _listed(self._claims, "", ".json")), default=0)

    @property
    def _claims(self) -> Path:
        return self.run_dir.launcher / "claims"

    @property
    def _submissions(self) -> Path:
        return self.run_dir.launcher / "submissions"

    def _unlogged(self, intent: Path, claim: Claim) -> bool:
        """Return whether an intent is this claim's own, whose log could not be written after it."""
        own = json.loads(intent.read_bytes())["epoch"] == claim.epoch
        events = read_log(self._claimed().path).events
        logged = [e.data["submission"] for e in events if e.kind == Kind.SUBMIT_INTENDED]
        return own and int(intent.stem) not in logged

    def _mark(self, submission: int) -> Path:
        return self.run_dir.launcher / f"stream-{submission:04d}"

    def _claimed(self) -> LogWriter:
        if self._writer is None:
            raise JobLogError(f"Job {self.key} was not claimed before its log was written.")
        return self._writer


def newest_generation(run_root: Path, key: JobKey) -> int:
    """Return a task instance's newest generation, 0 before the first.

    ``key.generation`` is ignored. Raises :class:`JobLogError` when the run root cannot be read.
    """
    with _reachable(key):
        folders = [path for path in _listed(run_root / key.base, "g", "") if path.is_dir()]
    numbers = (path.name[1:] for path in folders)
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def _listed(folder: Path, prefix: str, suffix: str) -> list[Path]:
    """Return the files of such names in order; none without the folder. Raises ``OSError``.

    ``Path.glob`` would not do: from Python 3.13 on it is silent about a folder it cannot read.
    """
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in paths if path.name.startswith(prefix) and path.suffix == suffix]


def _create(path: Path, content: Mapping[str, Any]) -> bool:
    """Create ``path`` whole and exclusively; False when it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft(path.parent, json.dumps(content).encode()) as finished:
        return link(finished, path)
