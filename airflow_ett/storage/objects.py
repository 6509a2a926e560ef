"""A place in an object store, through fsspec: nothing is appended to there, and nothing renamed.

::

    launcher/claims/00000001.json               an object, created by the store's conditional put
    nodes/agent-1.0.0-n0-p7.jsonl/00000000      a log's chunks: whole lines, never changed,
    nodes/agent-1.0.0-n0-p7.jsonl/00000001      numbered without a gap

So a reader needs one listing for the logs' names, and then asks for chunks until there is none.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import BadLine, Chunk, Event, decode_log, encode
from airflow_ett.storage.absence import code, is_absence
from airflow_ett.storage.names import (
    LOG_FOLDERS,
    checked_file,
    checked_folder,
    checked_log,
    is_log,
    is_name,
)
from airflow_ett.storage.protocol import Entry

_AT_ONCE = 64
_PIECE = 32 * 2**20
_OTHER_BY_NOW = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
_NO_TAG = '"0"'
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "created")


class ObjectStorage:
    """A :class:`airflow_ett.storage.Readable` at a URI such as ``s3://bucket/ett/…/g1``.

    Credentials are those that the file system finds in the environment. Listings are never cached.
    Raises :class:`ConfigurationError` where fsspec, or its package for the scheme, is missing.
    """

    def __init__(self, uri: str) -> None:
        self.place = uri.rstrip("/")
        self._fs, self._root = _opened(self.place)
        self._next: dict[str, int] = {}
        self._appending = threading.Lock()
        self._exclusive = False
        self._swaps: bool | None = None

    def create(self, name: str, content: bytes) -> bool:
        """Make a file, whole, for one of several alone; False where there is one of that name.

        True where the file holds this very content: so one's own file is known after an answer
        that got lost. Raises :class:`ConfigurationError` where the store would let several make it.
        """
        path = self._path(checked_file(name))
        self.prove()
        return self._put_new(path, content)

    def prove(self) -> None:
        """Try whether the store makes an object for one alone: not all know conditional puts.

        Raises :class:`ConfigurationError` as :meth:`create` does.
        """
        if self._exclusive:
            return
        if _is_atomic(self._fs):
            with self._probe() as path:
                self._exclusive = self._refuses(path)
        if not self._exclusive:
            problem = (
                "this store, or its fsspec package, has no conditional put: two processes could "
                "both believe that a file (a job's claim, a model's version) is theirs"
            )
            raise ConfigurationError(self.place, problem)

    def swaps(self) -> bool:
        """Return whether :meth:`swap` works here: with S3, and what is like it in this, too."""
        if self._swaps is None:
            self._swaps = False
            if "s3" in self._fs.protocol:
                with self._probe() as path:
                    self._swaps = not self._swap(path, b"swapped", _NO_TAG)
        return self._swaps

    def tag(self, name: str) -> str:
        """Return what tells a file's content from any other, also from none, for :meth:`swap`."""
        path = self._path(checked_file(name))
        try:
            with self._told():
                return str(self._fs.info(path)["ETag"])
        except FileNotFoundError:
            return _NO_TAG

    def swap(self, name: str, content: bytes, tag: str) -> bool:
        """Write a file in place of the one with this tag; False where it is another by now.

        True where the file holds this very content, as for :meth:`create`.
        """
        path = self._path(checked_file(name))
        with self._told():
            return self._swap(path, content, tag) or self._content(path) == content

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, in place of the former one."""
        path = self._path(checked_file(name))
        with self._told():
            self._fs.pipe_file(path, content)

    def upload(self, name: str, file: Path) -> None:
        """Write a file of this host whole, in place of the former one, a part at a time."""
        path = self._path(checked_file(name))
        with self._told():
            self._fs.put_file(str(file), path)

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield a file's content, a piece at a time. Raises ``FileNotFoundError`` for none."""
        path = self._path(checked_file(name))
        with self._told():
            size = int(self._fs.info(path)["size"])
        for start in range(0, size, _PIECE):
            with self._told():
                end = min(start + _PIECE, size)
                piece: bytes = self._fs.cat_file(path, start=start, end=end)
            yield piece

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None where there is none."""
        return self._content(self._path(checked_file(name)))

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""
        path = self._path(checked_file(name))
        with contextlib.suppress(FileNotFoundError), self._told():
            self._fs.rm_file(path)

    def entries(self, folder: str, *, fresh: bool = True) -> list[Entry]:
        """Return the files of a folder as they are now, by name; none without the folder."""
        found = self._listed(folder)
        return [
            Entry(name, self._time_ns(info))
            for name, info in sorted(found.items())
            if info["type"] == "file" and is_name(name) and not is_log(f"{folder}/{name}")
        ]

    def append(self, log: str, events: Sequence[Event]) -> None:
        """Append events to a log, as one chunk."""
        content = b"".join(encode(event) for event in events)
        with self._appending:
            number = self._next.get(checked_log(log))
            if number is None:
                numbers = (int(name) for name in self._listed(log) if name.isdecimal())
                number = 1 + max(numbers, default=-1)
            while content and not self._put_new(self._chunk(log, number), content):
                number += 1  # another process of this writer's name has got further
            self._next[log] = number + bool(content)

    def events(self, folder: str) -> list[Event]:
        """Return what the logs of ``launcher`` or ``nodes`` hold, log by log in order of names."""
        return [event for log in self._logs(folder) for event in self.read_log(log).events]

    def now_ns(self) -> int:
        """Return the time that the store gives to an object now. On S3 it is of whole seconds."""
        path = self._path("draft-clock")
        with self._told():
            self._fs.pipe_file(path, b"")
            return self._time_ns(self._fs.info(path))

    def logs(self) -> list[str]:
        """Return the names of all logs, the launchers' first."""
        return [log for folder in LOG_FOLDERS for log in self._logs(folder)]

    def read_log(self, log: str, offset: int = 0) -> Chunk:
        """Read a log from chunk ``offset`` on, or all of it where it has fewer now.

        A chunk is whole: a last line without its newline is one that nobody will finish.
        """
        chunks = list(self._chunks(log, offset))
        if not chunks and offset and self._content(self._chunk(log, offset - 1)) is None:
            offset = 0
            chunks = list(self._chunks(log, offset))
        events: list[Event] = []
        bad: list[BadLine] = []
        for number, content in enumerate(chunks, offset):
            found = decode_log(content, Path(log, _number(number)))
            events += found.events
            bad += found.bad
        return Chunk(tuple(events), tuple(bad), offset + len(chunks))

    def logged_ns(self) -> int | None:
        """Return when a log was last written to, by the store's clock; None where there is none."""
        times = []
        for folder in LOG_FOLDERS:
            with self._told():
                found = self._fs.find(self._path(folder), detail=True)
            times += [self._time_ns(info) for path, info in found.items() if ".jsonl/" in path]
        return max(times, default=None)

    def heartbeat_ns(self) -> int | None:
        """Return when an agent of the job last lived, by this computer's clock; None where none
        did.

        Without the right to write, both clocks are taken to agree.
        """
        beats = [e.time_ns for e in self.entries("nodes") if e.name.startswith("heartbeat-")]
        if not beats:
            return None
        ahead_ns = 0
        with contextlib.suppress(PermissionError):
            ahead_ns = time.time_ns() - self.now_ns()
        return max(beats) + ahead_ns

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of the folders in a folder, in order."""
        found = self._listed(folder)
        return sorted(n for n, info in found.items() if info["type"] == "directory" and is_name(n))

    def _logs(self, folder: str) -> list[str]:
        names = (f"{folder}/{name}" for name in self.folders(folder))
        return [name for name in names if is_log(name)]

    def _chunks(self, log: str, number: int) -> Iterator[bytes]:
        """Yield chunks until there is none, more and more of them at once."""
        many = 1
        while True:
            paths = [self._chunk(log, each) for each in range(number, number + many)]
            with self._told():
                found = self._fs.cat(paths, on_error="return")
            for path in paths:
                content = found[path]
                if isinstance(content, Exception) and is_absence(content):
                    return
                if isinstance(content, Exception):
                    with self._told():
                        raise content
                yield content
            number += many
            many = min(2 * many, _AT_ONCE)

    def _content(self, path: str) -> bytes | None:
        try:
            with self._told():
                content: bytes = self._fs.cat_file(path)
                return content
        except FileNotFoundError:
            return None

    def _put_new(self, path: str, content: bytes) -> bool:
        """Make an object by a conditional put; True, too, where it holds this content already."""
        try:
            with self._told():
                self._fs.pipe_file(path, content, mode="create")
        except OSError:  # there is one, perhaps this very one; or nobody knows
            found = self._content(path)
            if found is None:
                raise
            return found == content
        return True

    @contextlib.contextmanager
    def _probe(self) -> Iterator[str]:
        """Make an object to try something with."""
        path = self._path(f"draft-{uuid.uuid4().hex}")
        with self._told():
            self._fs.pipe_file(path, b"", mode="create")
            yield path
            self._fs.rm_file(path)

    def _swap(self, path: str, content: bytes, tag: str) -> bool:
        try:
            self._fs.pipe_file(path, content, IfMatch=tag)
        except Exception as error:
            if code(error) in _OTHER_BY_NOW:
                return False
            raise
        return True

    def _refuses(self, path: str) -> bool:
        try:
            self._fs.pipe_file(path, b"", mode="create")
        except OSError as error:
            if isinstance(error, FileExistsError) or code(error) == "PreconditionFailed":
                return True
            raise
        return False

    def _listed(self, folder: str) -> dict[str, Mapping[str, Any]]:
        """Return what the store knows of what is in a folder, by name."""
        path = self._path(checked_folder(folder))
        try:
            with self._told():
                found = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return {}
        begin = f"{path.rstrip('/')}/"
        names = ((info["name"].rstrip("/"), info) for info in found)
        return {name.removeprefix(begin): info for name, info in names if name.startswith(begin)}

    def _time_ns(self, info: Mapping[str, Any]) -> int:
        known = (info[name] for name in _TIMES if isinstance(info.get(name), datetime))
        moment: datetime = next(known, None) or self._fs.modified(info["name"])
        return int(moment.timestamp() * 1_000_000) * 1000

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _chunk(self, log: str, number: int) -> str:
        return self._path(f"{log}/{_number(number)}")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Have whatever the file system raises arrive as ``OSError`` with the place."""
        try:
            yield
        except Exception as error:
            if isinstance(error, FileExistsError) or is_absence(error):
                raise
            text = (
                f"{error or type(error).__name__} ({type(error).__name__}). Check the address, and "
                "the credentials that fsspec finds in this process's environment"
            )
            if isinstance(error, PermissionError):
                raise PermissionError(errno.EACCES, text, self.place) from error
            raise OSError(errno.EIO, text, self.place) from error


def _opened(uri: str) -> tuple[Any, str]:
    """Return the file system and the path in it.

    S3's asks for the size of each object before it reads one, unless it may not read in parts.
    """
    parts = urlsplit(uri)
    if parts.password is not None:
        problem = "holds a password, and would be shown; give it in the environment"
        raise ConfigurationError(f"{parts.scheme}://…", problem)
    try:
        import fsspec

        options = {"max_concurrency": 1} if parts.scheme in ("s3", "s3a") else {}
        fs, path = fsspec.url_to_fs(uri, use_listings_cache=False, **options)
    except ImportError as error:
        problem = f"needs fsspec and its package for that scheme here: {error}"
        raise ConfigurationError(uri, problem) from error
    except ValueError as error:
        raise ConfigurationError(uri, str(error)) from error
    return fs, path.rstrip("/")


def _is_atomic(fs: Any) -> bool:
    """Return whether a file system has its own way to create: fsspec's looks first, then writes."""
    from fsspec.spec import AbstractFileSystem

    return fs.async_impl or type(fs).pipe_file is not AbstractFileSystem.pipe_file


def _number(number: int) -> str:
    return f"{number:08d}"
