"""Folders and files behind a URI, through fsspec: as much of ``pathlib.Path`` as checkpoints need.

An object store has no folders to make or to sync, and a file there is whole or absent. Listings are
never cached, since others write, too.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from airflow_ett.errors import ConfigurationError
from airflow_ett.storage.absence import is_absence

_BUCKETED = {"s3", "gs", "az", "abfs"}
"""Protocols whose folders need no making: their ``makedirs`` makes the bucket of a mistyped URI."""


class Stat(NamedTuple):
    """What is known of a file: its size in bytes."""

    st_size: int


class _File(io.RawIOBase):
    """An open file, whose errors are told as its path's are: it asks its store again and again."""

    def __init__(self, file: Any, told: Callable[[], contextlib.AbstractContextManager[None]]):
        self._file = file
        self._told = told

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with self._told():
            return int(self._file.seek(offset, whence))

    def read(self, size: int | None = -1) -> bytes:
        with self._told():
            content: bytes = self._file.read(-1 if size is None else size)
            return content

    def readinto(self, buffer: Any) -> int:
        with self._told():
            return int(self._file.readinto(buffer))

    def write(self, content: Any) -> int:
        with self._told():
            self._file.write(content)
            return memoryview(content).nbytes

    def close(self) -> None:
        if not self.closed:
            try:
                with self._told():
                    self._file.close()
            finally:
                super().close()


class RemotePath:
    """A file or folder at ``uri``. Whatever its file system raises arrives as ``OSError``.

    Raises :class:`ConfigurationError` where fsspec, or its part for the scheme, is missing.
    """

    __slots__ = ("_fs", "_path", "_uri")

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        try:
            import fsspec

            self._fs, self._path = fsspec.url_to_fs(self._uri, use_listings_cache=False)
        except ImportError as error:
            problem = f"{uri!r} needs fsspec and its package for that scheme here: {error}"
            raise ConfigurationError("checkpoint_uri", problem) from error
        except ValueError as error:
            raise ConfigurationError("checkpoint_uri", f"{uri!r}: {error}") from error

    def __str__(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"RemotePath({self._uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._uri == other._uri

    def __lt__(self, other: RemotePath) -> bool:
        return self._uri < other._uri

    def __hash__(self) -> int:
        return hash(self._uri)

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self._uri}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self._uri.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return RemotePath(self._uri.rpartition("/")[0])

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what is in the folder."""
        with self._told():
            entries = self._fs.ls(self._path, detail=False)
        names = {entry.rstrip("/").rpartition("/")[2] for entry in entries if entry != self._path}
        return iter([self / name for name in sorted(names)])

    def is_dir(self) -> bool:
        """Whether there is such a folder. Raises ``OSError`` where nobody can tell."""
        return self._kind() == "directory"

    def is_file(self) -> bool:
        """Whether there is such a file. Raises ``OSError`` where nobody can tell."""
        return self._kind() == "file"

    def is_symlink(self) -> bool:
        """Return False: no link is followed behind a URI."""
        return False

    def stat(self) -> Stat:
        """Return the file's size."""
        with self._told():
            return Stat(int(self._fs.size(self._path)))

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make the folder, where the file system knows folders: never a bucket."""
        if not _BUCKETED.intersection(self._protocols()):
            with self._told():
                self._fs.makedirs(self._path, exist_ok=exist_ok)

    def open(self, mode: str, *, ahead: int | None = None) -> Any:
        """Open the file, ``rb`` or ``wb``. What is written is there, whole, once it is closed.

        ``ahead`` is how many bytes to read ahead. File systems like to read 50 MiB, and hold that
        several times.
        """
        with self._told():
            return _File(self._fs.open(self._path, mode, block_size=ahead), self._told)

    def read_bytes(self) -> bytes:
        """Return the file's content."""
        with self._told():
            content: bytes = self._fs.cat_file(self._path)
            return content

    def read_text(self) -> str:
        """Return the file's content as text."""
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """Write the whole file at once."""
        with self._told():
            self._fs.pipe_file(self._path, content)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file."""
        with contextlib.suppress(*[FileNotFoundError] * missing_ok), self._told():
            self._fs.rm_file(self._path)

    def rmtree(self) -> None:
        """Remove the folder and all that is in it."""
        with self._told():
            self._fs.rm(self._path, recursive=True)

    def _kind(self) -> str:
        """Return what is here, '' where nothing is.

        Not ``isdir`` and ``isfile``: those of most file systems take an outage for a no.
        """
        try:
            with self._told():
                return str(self._fs.info(self._path)["type"])
        except FileNotFoundError:
            return ""

    def _protocols(self) -> tuple[str, ...]:
        names: str | tuple[str, ...] = self._fs.protocol
        return (names,) if isinstance(names, str) else tuple(names)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each file system has its own kinds
            if is_absence(error):
                missing = os.strerror(errno.ENOENT)
                raise FileNotFoundError(errno.ENOENT, missing, self._uri) from error
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise
            text = f"{type(error).__name__}: {error}"
            raise OSError(errno.EIO, text, self._uri) from error
