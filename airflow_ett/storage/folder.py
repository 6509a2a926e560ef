"""A run directory as a place: a folder that launchers and trainers share, on a disk or NFS."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from airflow_ett.events import Chunk, Event, RunDir, encode, read_log
from airflow_ett.events.exclusive import draft, freshen, link
from airflow_ett.storage.names import checked_file, checked_folder, checked_log, is_log, is_name
from airflow_ett.storage.protocol import Entry

_LARGEST = 64 * 2**20
"""Bytes of a file: a trainer may write any, and launchers read them."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderStorage:
    """A :class:`airflow_ett.storage.Readable` in a folder. Nothing in it is read through a link.

    The folder is made with the first file. Whole files are written aside and then get their name,
    so that nobody reads half of one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)
        self._run = RunDir(path)

    def create(self, name: str, content: bytes) -> bool:
        """Make a file, whole, for one of several alone; False where there is one of that name.

        True where the file holds this very content: so one's own file is known after an answer
        that got lost.
        """
        path = self._ready(checked_file(name))
        with draft(path.parent, content) as finished:
            return link(finished, path) or self.read(name) == content

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, in place of the former one."""
        path = self._ready(checked_file(name))
        with draft(path.parent, content) as finished:
            finished.replace(path)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None where there is none."""
        path = self._path(checked_file(name))
        try:
            handle = os.open(path, _READ)
        except FileNotFoundError:
            return None
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
                raise OSError(errno.EINVAL, "no regular file, or a huge one", str(path))
            return file.read()

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""
        self._path(checked_file(name)).unlink(missing_ok=True)

    def entries(self, folder: str, *, fresh: bool = True) -> list[Entry]:
        """Return the files of a folder as they are now, by name; none without the folder.

        Not ``fresh`` it is a listing that an NFS client may remember.
        """
        path = self._path(checked_folder(folder))
        if fresh:
            freshen(path)
        return [
            Entry(file.name, facts.st_mtime_ns)
            for file in _listed(path)
            if is_name(file.name) and not is_log(f"{folder}/{file.name}")
            if (facts := _facts(file)) is not None and stat.S_ISREG(facts.st_mode)
        ]

    def append(self, log: str, events: Sequence[Event]) -> None:
        """Append events to a log, one ``write(2)`` a line. What was torn before does no harm."""
        path = self._ready(checked_log(log))
        handle = os.open(path, _APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                _write(handle, b"\n", path)
            for event in events:
                _write(handle, encode(event), path)
        finally:
            os.close(handle)

    def events(self, folder: str) -> list[Event]:
        """Return what the logs of ``launcher`` or ``nodes`` hold, log by log in order of names."""
        path = self._path(checked_folder(folder))
        freshen(path)
        logs = [file for file in _listed(path) if is_log(f"{folder}/{file.name}")]
        return [
            event
            for log in logs
            if (facts := _facts(log)) is not None and stat.S_ISREG(facts.st_mode)
            for event in read_log(log).events
        ]

    def now_ns(self) -> int:
        """Return the time that the storage gives to a file now."""
        self.path.mkdir(parents=True, exist_ok=True)
        with draft(self.path, b"") as made:
            return made.stat().st_mtime_ns

    def logs(self) -> list[str]:
        """Return the names of all logs, the launchers' first: regular files only.

        They may be odd: whoever may write the folder names them.
        """
        return [log.relative_to(self.path).as_posix() for log in self._run.logs()]

    def read_log(self, log: str, offset: int = 0) -> Chunk:
        """Read a log's whole lines from byte ``offset`` on, or all where it is shorter now."""
        path = self.path / log
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size == offset:
            return Chunk((), (), offset)
        chunk = read_log(path, offset if offset < facts.st_size else 0)
        return replace(chunk, bad=tuple(replace(bad, path=Path(log)) for bad in chunk.bad))

    def logged_ns(self) -> int | None:
        """Return when a log was last written to; None where there is none."""
        return self._run.logged_ns()

    def heartbeat_ns(self) -> int | None:
        """Return when an agent of the job last lived; None where none did."""
        return self._run.heartbeat_ns()

    def _path(self, name: str) -> Path:
        """Return where a file or folder lies; its folders are no links."""
        path = self.path
        for part in name.split("/")[:-1]:
            path /= part
            if path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        return self.path / name

    def _ready(self, name: str) -> Path:
        """Return where a file is to be; its folder is there.

        A launcher's first file makes the trainers' folders, too: an NFS client that looked for one
        in vain would not see it for a while.
        """
        path = self._path(name)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_relative_to(self._run.launcher):
                self._run.nodes.mkdir(exist_ok=True)
                self._run.replies.mkdir(exist_ok=True)
        return path


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder in order; nothing without the folder. Raises ``OSError``.

    ``Path.glob`` would not do: from Python 3.13 on it is silent about a folder it cannot read.
    """
    if folder.is_symlink():
        return []
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _facts(path: Path) -> os.stat_result | None:
    """What is known of a file that was listed, None where it has gone."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _write(handle: int, line: bytes, path: Path) -> None:
    written = os.write(handle, line)
    if written != len(line):  # as where the disk is nearly full
        full = os.strerror(errno.ENOSPC)
        text = f"{full}: {written} of {len(line)} bytes were written"
        raise OSError(errno.ENOSPC, text, str(path))
