"""The append-only log: one ``write(2)`` a line, one file per writer; torn lines wait."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_ett.errors import EventLogError
from airflow_ett.events.record import AttemptId, Event, decode, encode

_OPEN_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class LogWriter:
    """Appends the events of one writer to a file of its own.

    Thread-safe. ``attempt`` and ``rank`` are the defaults of every event; in a new file they are
    numbered from ``first`` on. A write raises ``OSError`` and leaves at most a torn line, which
    readers never take for an event.
    """

    def __init__(
        self,
        path: Path,
        *,
        job: str,
        writer: str,
        attempt: AttemptId | None = None,
        rank: int | None = None,
        first: int = 0,
    ) -> None:
        self.path = path
        self.job = job
        self.writer = writer
        self._attempt = attempt
        self._rank = rank
        self._lock = threading.Lock()
        self._torn = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, _OPEN_FLAGS, 0o644)
        self.next_seq = self._resume_seq(first)

    def append(
        self,
        kind: str,
        data: Mapping[str, Any] | None = None,
        *,
        time_ns: int | None = None,
        attempt: AttemptId | None = None,
        rank: int | None = None,
    ) -> Event:
        """Write one event (``time_ns`` defaults to now) and return it."""
        with self._lock:
            event = Event(
                job=self.job,
                writer=self.writer,
                seq=self.next_seq,
                time_ns=time.time_ns() if time_ns is None else time_ns,
                kind=kind,
                attempt=attempt or self._attempt,
                rank=self._rank if rank is None else rank,
                data=data or {},
            )
            self._write(encode(event))
            self.next_seq += 1
            return event

    def copy(self, event: Event) -> None:
        """Write another writer's event as it is, such as an interval that a dead trainer left."""
        with self._lock:
            self._write(encode(event))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _write(self, line: bytes) -> None:
        if self._torn:
            line = b"\n" + line
        self._torn = True
        written = os.write(self._file, line)
        if written != len(line):  # as where the disk is nearly full
            full = os.strerror(errno.ENOSPC)
            text = f"{full}: {written} of {len(line)} bytes were written"
            raise OSError(errno.ENOSPC, text, str(self.path))
        self._torn = False

    def _resume_seq(self, first: int) -> int:
        events = read_log(self.path).events
        return max((1 + e.seq for e in events if e.writer == self.writer), default=first)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A whole line that is no event: where it stands, what it says, what is wrong."""

    path: Path
    offset: int
    line: bytes
    problem: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a log held from the given offset: events, bad lines, and where to go on."""

    events: tuple[Event, ...]
    bad: tuple[BadLine, ...]
    offset: int


def read_log(path: Path, offset: int = 0) -> Chunk:
    """Read all whole lines from ``offset`` on. A last line without its newline waits.

    Raises ``OSError``; a link in place of the file is refused.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        file.seek(offset)
        content = file.read()
    return decode_log(content[: content.rfind(b"\n") + 1], path, offset)


def decode_log(lines: bytes, path: Path, offset: int = 0) -> Chunk:
    """Return what lines are that stand in a log at ``path`` from ``offset`` on."""
    events: list[Event] = []
    bad: list[BadLine] = []
    for start, line in _lines(lines, offset):
        try:
            events.append(decode(line))
        except EventLogError as error:
            bad.append(BadLine(path, start, line, str(error)))
    return Chunk(tuple(events), tuple(bad), offset + len(lines))


def _lines(content: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    for line in content.splitlines(keepends=True):
        if line.strip():
            yield offset, line
        offset += len(line)
