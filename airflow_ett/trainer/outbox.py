"""What a node has yet to send to the place of its job's log: the local run directory is the spool.

``.sent`` in it says how much of each file has arrived. Who sends holds a lock on it, so that two
agents on one host, or one and its successor, do not send everything twice; a lost ``.sent``, or a
lock that is not waited for any longer, costs no more than that: places keep one event per number.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from airflow_ett.checkpoints.holder import launch
from airflow_ett.errors import EventLogError
from airflow_ett.events import Event, decode, decode_cursor
from airflow_ett.storage import Storage
from airflow_ett.trainer.place import Place

MOST_BYTES = 256 * 1024
"""Of a log, at once; of a longer line nothing is sent, and of a longer file its end."""

MOST_EVENTS = 500

_TURN_S = 5.0
"""How long another sender is waited for: it may have been stopped for good, lock in hand."""

_LOOK_S = 0.1

_SURE_S = 10.0
"""So long after a cursor was sent it is still the job's newest; later somebody may have followed,
unseen by an agent that was stopped or cut off."""

_FRESH_S = 15.0
"""An agent that has beaten within so many seconds counts as alive."""

_LEDGER = ".sent"
_STACKS = ".txt"
_REFUSED = (errno.EINVAL, errno.EFBIG)
"""Of what a place will never take."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Block(NamedTuple):
    """Events of a log, its bad lines with where they begin, and where to go on."""

    events: list[Event]
    bad: list[tuple[int, str]]
    end: int


class Outbox:
    """Sends what is new in a run directory.

    ``heartbeat`` is the file that the node's agent touches. ``say`` tells people of what cannot be
    sent, once a file.
    """

    def __init__(self, place: Place, heartbeat: Path | None, say: Callable[[str], None]) -> None:
        self._place = place
        self._run = place.run_dir
        self._heartbeat = heartbeat
        self._say = say
        self._told: set[str] = set()
        self._sent: dict[str, int] = {}
        self._beaten_ns = 0
        self._cursor = b""
        self._cursor_s = float("-inf")

    def ship(self, storage: Storage) -> None:
        """Send all that is new: files that were there before the events that followed, after them.

        So a reply never arrives before the events that explain it. Raises ``OSError`` while the
        place cannot be reached; what has arrived by then is not sent again.
        """
        self._beat(storage)
        with self._ledger() as note:
            cursor, files = self._new_cursor(), self._new_files()
            for log in self._listed("nodes", ".jsonl"):
                self._ship_log(storage, log, note)
            if cursor and self._is_newest(storage):
                storage.write("cursor", cursor)
                self._cursor, self._cursor_s = cursor, time.monotonic()
            for name, size in files.items():
                self._ship_file(storage, name, size)
                note(name, size)

    def left(self) -> int:
        """Return how many bytes have not arrived."""
        sizes = {name: self._size(name) for name in self._names()}
        return sum(max(0, size - self._sent.get(name, 0)) for name, size in sizes.items())

    def _beat(self, storage: Storage) -> None:
        """Pass a new heartbeat on, unless it is an old one: the place would stamp it as of now."""
        if self._heartbeat is None:
            return
        with contextlib.suppress(FileNotFoundError):
            beaten_ns = self._heartbeat.stat().st_mtime_ns
            if beaten_ns != self._beaten_ns and time.time_ns() - beaten_ns < _FRESH_S * 1e9:
                storage.write(f"nodes/{self._heartbeat.name}", b"")
                self._beaten_ns = beaten_ns

    @contextlib.contextmanager
    def _ledger(self) -> Iterator[Callable[[str, int], None]]:
        """Hold the ledger, for this process alone; gives the function that notes what arrived.

        Where the disk takes no ledger, what arrived is known as long as this process lives.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.ExitStack() as stack:
            handle = None
            with contextlib.suppress(OSError):
                self._run.path.mkdir(parents=True, exist_ok=True)
                handle = os.open(self._run.path / _LEDGER, flags, 0o644)
                stack.callback(os.close, handle)
                _await_turn(handle)
                for name, size in _entries(handle).items():
                    self._sent[name] = max(size, self._sent.get(name, 0))
            yield lambda name, size: self._note(handle, name, size)

    def _note(self, handle: int | None, name: str, size: int) -> None:
        self._sent[name] = size
        if handle is not None:
            with contextlib.suppress(OSError):
                os.pwrite(handle, json.dumps(self._sent).encode() + b"\n", 0)

    def _new_cursor(self) -> bytes:
        """Return the cursor file's content where this attempt's trainer has written it anew.

        It is read before the logs: an interval that is closed in between is in both then.
        """
        if self._place.node != 0:
            return b""
        content = self._read("cursor")
        record = decode_cursor(content)
        mine = record is not None and record.attempt == self._place.attempt
        return content if mine and content != self._cursor else b""

    def _is_newest(self, storage: Storage) -> bool:
        """Say whether no later launch has sent its cursor, which this one's must not replace."""
        if time.monotonic() - self._cursor_s < _SURE_S:
            return True
        there = decode_cursor(storage.read("cursor") or b"")
        return there is None or launch(there.attempt) <= launch(self._place.attempt)

    def _new_files(self) -> dict[str, int]:
        """Return the replies and stacks that have changed, with their sizes."""
        names = [*self._listed("nodes", _STACKS), *self._listed("replies", ".json")]
        sizes = {name: self._size(name) for name in names}
        return {name: size for name, size in sizes.items() if size != self._sent.get(name, 0)}

    def _ship_log(self, storage: Storage, name: str, note: Callable[[str, int], None]) -> None:
        offset = self._sent.get(name, 0)
        if offset > self._size(name):  # another file than the one that was sent
            offset = 0
        while (block := self._block(name, offset)).end > offset:
            for at, problem in block.bad:
                self._skip(name, f"the line at byte {at} of {self._run.path / name}", problem)
            if block.events:
                self._beat(storage)
                self._append(storage, name, block.events)
            offset = block.end
            note(name, offset)

    def _append(self, storage: Storage, name: str, events: Sequence[Event]) -> None:
        """Send events; where the place refuses some of them as such, it keeps all others."""
        try:
            storage.append(name, events)
        except OSError:
            raise
        except (EventLogError, ValueError) as error:
            self._skip(name, f"an event in {self._run.path / name}", error)

    def _skip(self, name: str, what: str, problem: object) -> None:
        """Tell, once a file, of something in it that can never be sent."""
        if name not in self._told:
            self._told.add(name)
            self._say(f"{what} is not sent, nor will others be that are like it: {problem}")

    def _ship_file(self, storage: Storage, name: str, size: int) -> None:
        content = self._read(name)[-MOST_BYTES:]
        try:
            storage.write(name, content)
            if name.endswith(_STACKS):
                storage.write(size_of(name), str(size).encode())
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _REFUSED:
                raise
            self._skip(name, str(self._run.path / name), error)

    def _names(self) -> list[str]:
        logs, stacks = self._listed("nodes", ".jsonl"), self._listed("nodes", _STACKS)
        return [*logs, *stacks, *self._listed("replies", ".json")]

    def _listed(self, folder: str, suffix: str) -> list[str]:
        """Return what is in a folder of the run directory, by name; drafts are hidden files."""
        try:
            found = sorted(path.name for path in (self._run.path / folder).iterdir())
        except OSError:
            return []
        return [f"{folder}/{n}" for n in found if n.endswith(suffix) and not n.startswith(".")]

    def _size(self, name: str) -> int:
        try:
            return (self._run.path / name).lstat().st_size
        except OSError:
            return 0

    def _read(self, name: str) -> bytes:
        try:
            handle = os.open(self._run.path / name, _READ)
        except OSError:
            return b""
        with os.fdopen(handle, "rb") as file:
            return file.read()

    def _block(self, name: str, offset: int) -> _Block:
        """Read whole lines from ``offset`` on, as many as go at once; a torn last one waits."""
        try:
            handle = os.open(self._run.path / name, _READ)
        except OSError as error:
            self._skip(name, str(self._run.path / name), error)
            return _Block([], [], offset)
        with os.fdopen(handle, "rb") as file:
            file.seek(offset)
            content = file.read(MOST_BYTES)
            if b"\n" not in content and len(content) == MOST_BYTES:
                return _skip_line(file, offset)
        return _parse(content, offset, self._place.context.key.id)


def _await_turn(ledger: int) -> None:
    """Lock the ledger, unless that takes too long. A lock is no fork's, and gone with its process.

    Raises ``OSError`` where files cannot be locked.
    """
    until = time.monotonic() + _TURN_S
    while True:
        try:
            fcntl.lockf(ledger, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # how systems say that another has it
            if time.monotonic() < until:
                time.sleep(_LOOK_S)
                continue
        return


def size_of(stacks: str) -> str:
    """Return the name of the file that says how long a file of stacks is, for who only asks."""
    return f"{stacks.removesuffix(_STACKS)}.size"


def _entries(ledger: int) -> dict[str, int]:
    """Return what the ledger says; nothing where a kill or a full disk has left half of it."""
    try:
        content = os.pread(ledger, os.fstat(ledger).st_size, 0)
        known: dict[str, int] = json.loads(content.partition(b"\n")[0] or b"{}")
        return {str(name): int(size) for name, size in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _parse(content: bytes, offset: int, job: str) -> _Block:
    block, bad, end = [], [], offset
    for line in content.split(b"\n")[:-1]:
        at, end = end, end + len(line) + 1
        if not line.strip():
            continue
        try:
            event = decode(line)
            if event.job != job:
                raise EventLogError(f"it is of job {event.job}, not of {job}")
            block.append(event)
        except EventLogError as error:
            bad.append((at, str(error)))
        if len(block) == MOST_EVENTS:
            break
    return _Block(block, bad, end)


def _skip_line(file: BinaryIO, offset: int) -> _Block:
    """Pass over a line that is longer than what is sent at once, when it is whole."""
    file.seek(offset)
    end = offset
    while content := file.read(MOST_BYTES):
        found = content.find(b"\n")
        if found >= 0:
            problem = f"it is longer than {MOST_BYTES} bytes"
            return _Block([], [(offset, problem)], end + found + 1)
        end += len(content)
    return _Block([], [], offset)
