"""The job log at a place: a run directory, a folder in an object store, or the API.

::

    launcher/claims/<epoch>.json         one per claim, created exclusively
    launcher/submissions/<number>.json   one per intent, created exclusively
    launcher/e<epoch>.jsonl              what the holder of a claim has written
    launcher/stream-<number>             how far a submission's output was shown
    replies/<attempt>-n<node>.json       how a node's ranks ended, as its agent told
    nodes/heartbeat-…                    written again and again while an agent lives
    cursor                               where rank 0 stands in the data
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import AttemptId, CursorRecord, Event, JobKey, Kind, decode_cursor
from airflow_ett.launch.joblog import Claim
from airflow_ett.storage import Storage, is_at_api

_CLAIMS = "launcher/claims"
_SUBMISSIONS = "launcher/submissions"
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.EISDIR)
"""Where a trainer has put a link or the like in place of a file."""


@contextlib.contextmanager
def reachable(key: JobKey, place: str) -> Iterator[None]:
    """Turn I/O errors into one that says which job's log is away and which option is at fault."""
    try:
        yield
    except OSError as error:
        raise JobLogError(
            f"The log of job {key} cannot be used: {error}. {_advice(place)}"
        ) from error


def _advice(place: str) -> str:
    if is_at_api(place):
        return (
            "Check [ett] api_url (workers, triggerers and trainers must reach it) and [ett] "
            "api_secret (it must be the API servers' own)."
        )
    return "Check [ett] run_root (it must be writable for workers, triggerers and trainers alike)."


def _as_it_is(value: Any) -> Any:
    return value


class StorageLog:
    """A :class:`airflow_ett.launch.joblog.JobLog` at a place.

    ``redact`` returns a text, or JSON data, without secrets. ``generations`` is the place that
    tells of the task instance's generations, None where a listing of the root does.
    """

    def __init__(
        self,
        storage: Storage,
        key: JobKey,
        *,
        redact: Callable[[Any], Any] = _as_it_is,
        generations: Storage | None = None,
    ) -> None:
        self.storage = storage
        self.key = key
        self.place = storage.place
        self._redact = redact
        self._generations = generations
        self._epoch = 0
        self._numbers = itertools.count()
        self._intended: set[int] = set()

    def redact(self, value: Any) -> Any:
        """Return a text, or JSON data, without secrets."""
        return self._redact(value)

    def claim(
        self, *, try_number: int, max_tries: int, mode: str, after: int | None = None
    ) -> Claim:
        """Take the next epoch and with it a log of its own."""
        owner = f"{socket.gethostname()}:{os.getpid()}"
        # What is found made counts as one's own where it says the same: no two claims do.
        content = {"owner": owner, "try": try_number, "mode": mode, "id": uuid.uuid4().hex}
        with self._reachable():
            epoch = (self.newest() if after is None else after) + 1
            if epoch == 1 and self._generations is not None:
                self._generations.create(f"g{self.key.generation}", b"")
            while not self._create(f"{_CLAIMS}/{epoch:08d}.json", content):
                if after is not None:
                    raise Fenced(f"Job {self.key} was claimed by another owner meanwhile.")
                epoch += 1
        self._epoch, self._numbers, self._intended = epoch, itertools.count(), set()
        told = {"epoch": epoch, "owner": owner, "try": try_number, "max_tries": max_tries}
        self.append(Kind.CLAIMED, told | {"mode": mode})
        return Claim(epoch, try_number, max_tries, mode)

    def check(self, claim: Claim) -> None:
        """Raise :class:`Fenced` when a newer claim exists, :class:`JobLogError` when none does."""
        newest = self.newest()
        if newest < claim.epoch:
            raise JobLogError(
                f"The log of job {self.key} has lost claim {claim.epoch}: was {self.place} "
                f"removed, or is it not there? {_advice(self.place)}"
            )
        if newest > claim.epoch:
            raise Fenced(
                f"Job {self.key} is watched by a newer owner (claim {newest}, this one is "
                f"{claim.epoch}); stopped without touching the training."
            )

    def intend(self, claim: Claim, submission: int, fields: Mapping[str, Any]) -> Event:
        """Create the submission's intent exclusively and log it.

        One whose log line could not be written is made again by its own claim, and by no other.
        """
        self.check(claim)
        name = f"{_SUBMISSIONS}/{submission:04d}.json"
        with self._reachable():
            made = self._create(name, {"epoch": claim.epoch, **fields})
            own = made or json.loads(self.storage.read(name) or b"{}").get("epoch") == claim.epoch
        if not own or submission in self._intended:
            raise Fenced(f"Submission {submission} of job {self.key} is being made elsewhere.")
        event = self.append(Kind.SUBMIT_INTENDED, {"submission": submission, **fields})
        self._intended.add(submission)
        return event

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
        event = Event(
            job=self.key.id,
            writer=f"launcher-{self._epoch}",
            # Used once, also where nobody knows whether the event has arrived.
            seq=next(self._numbers),
            time_ns=time.time_ns() if time_ns is None else time_ns,
            kind=kind,
            attempt=attempt,
            data=data or {},
        )
        self.copy(event)
        return event

    def copy(self, event: Event) -> None:
        """Append another writer's event as it is."""
        if not self._epoch:
            raise JobLogError(f"Job {self.key} was not claimed before its log was written.")
        with self._reachable():
            self.storage.append(f"launcher/e{self._epoch:08d}.jsonl", [event])

    def launcher_events(self) -> list[Event]:
        """Return what all launchers of this job wrote, in order of epochs."""
        with self._reachable():
            events = {(e.writer, e.seq): e for e in self.storage.events("launcher")}
        return sorted(events.values(), key=lambda event: _epoch(event.writer))

    def intents(self) -> dict[int, dict[str, Any]]:
        """Return every submission's intent by number, logged or not."""
        with self._reachable():
            return {
                int(name.removesuffix(".json")): json.loads(content)
                for name, content in self._files(_SUBMISSIONS, "", ".json")
            }

    def submission_events(self, submission: int) -> list[Event]:
        """Return what agents and trainers of a submission wrote."""
        with self._reachable():
            events = {
                (event.writer, event.seq): event
                for event in self.storage.events("nodes")
                if event.attempt is not None and event.attempt.submission == submission
            }
        return list(events.values())

    def replies(self, attempt: AttemptId) -> list[dict[str, Any]]:
        """Return how each node of an attempt ended, as its agent told. Torn files are skipped."""
        replies = []
        with self._reachable():
            for _, content in self._files("replies", f"{attempt}-n", ".json"):
                with contextlib.suppress(ValueError):
                    replies.append(json.loads(content))
        return replies

    def replied(self, submission: int, restart: int) -> bool:
        """Return whether an agent has told how its node ended; False where nobody knows."""
        with contextlib.suppress(OSError):
            names = self._names("replies", f"{submission}.{restart}.", ".json", fresh=False)
            return bool(names)
        return False

    def cursor(self) -> CursorRecord | None:
        """Return where rank 0 stands in the data, None where none can be read."""
        with self._reachable():
            try:
                content = self.storage.read("cursor")
            except OSError as error:
                if error.errno in _NO_FILE:
                    return None
                raise
        return decode_cursor(content) if content else None

    def heartbeat_ns(self) -> int | None:
        """Return when an agent of the job last lived, in UTC nanoseconds; None where none did."""
        with self._reachable():
            times = [
                entry.time_ns
                for entry in self.storage.entries("nodes", fresh=False)
                if entry.name.startswith("heartbeat-")
            ]
            return max(times) + self._ahead_ns if times else None

    def shown(self, submission: int) -> int:
        """Return up to which offset the submission's output was shown to people."""
        with self._reachable():
            text = (self.storage.read(_mark(submission)) or b"").decode(errors="replace")
        return int(text) if text.isdecimal() else 0

    def note_shown(self, submission: int, offset: int) -> None:
        """Keep that offset for whoever goes on."""
        with self._reachable():
            self.storage.write(_mark(submission), str(offset).encode())

    def newest(self) -> int:
        """Return the newest epoch, 0 before the first claim."""
        with self._reachable():
            names = self._names(_CLAIMS, "", ".json")
        return max((int(name.removesuffix(".json")) for name in names), default=0)

    @cached_property
    def _ahead_ns(self) -> int:
        """How far this process's clock is ahead of the place's."""
        return time.time_ns() - self.storage.now_ns()

    def _reachable(self) -> contextlib.AbstractContextManager[None]:
        return reachable(self.key, self.place)

    def _create(self, name: str, content: Mapping[str, Any]) -> bool:
        return self.storage.create(name, json.dumps(content).encode())

    def _names(self, folder: str, prefix: str, suffix: str, *, fresh: bool = True) -> list[str]:
        entries = self.storage.entries(folder, fresh=fresh)
        names = (entry.name for entry in entries)
        return [name for name in names if name.startswith(prefix) and name.endswith(suffix)]

    def _files(self, folder: str, prefix: str, suffix: str) -> Iterator[tuple[str, bytes]]:
        for name in self._names(folder, prefix, suffix):
            content = self.storage.read(f"{folder}/{name}")
            if content is not None:
                yield name, content


def _mark(submission: int) -> str:
    return f"launcher/stream-{submission:04d}"


def _epoch(writer: str) -> int:
    """Return a launcher's epoch, 0 for another writer: places list logs as they name them."""
    told = re.fullmatch(r"launcher-(\d+)", writer)
    return int(told[1]) if told else 0
