"""The files of a lease: on a file system that trainers share, or at any other place.

::

    .lease/00000003.json    the holder
    .lease/00000003.beat    its heartbeat, where a file cannot be touched without being made again

On a file system the former holders' files are removed: so their next heartbeat fails at the file
server itself, whatever an NFS client has cached. Other places list what there is, and answer all
alike: there nothing is removed, and the heartbeat, which would bring its file back, is a file of
its own that proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from airflow_ett.checkpoints.layout import LEASE
from airflow_ett.events.exclusive import draft, link
from airflow_ett.storage import Storage


class Taken(NamedTuple):
    """A lease as it lies there, and when its holder was last heard of, by the place's clock."""

    content: bytes
    time_ns: int


class Offer(NamedTuple):
    """A lease to be taken: what asks for the time by the place's clock, and what takes a number.

    ``take`` returns whether it got the number, for it alone.
    """

    now_ns: Callable[[], int]
    take: Callable[[int], bool]


class LeaseFiles(Protocol):
    """Numbered leases. Every method raises ``OSError`` where nobody knows."""

    def name(self, number: int) -> str:
        """Return where a lease lies, for people."""

    def numbers(self) -> list[int]:
        """Return the numbers of the leases that are there."""

    def read(self, number: int) -> Taken | None:
        """Return a lease, None where there is none."""

    def beat(self, number: int) -> bool:
        """Renew a lease's heartbeat; False where the lease has been removed."""

    def offer(self, content: bytes) -> AbstractContextManager[Offer]:
        """Prepare a lease, to be taken within the block."""

    def clear(self, before: int) -> None:
        """Remove the leases with lower numbers, where that is needed."""


class FolderFiles:
    """Leases in a checkpoint folder on a file system."""

    def __init__(self, root: Path) -> None:
        self._folder = root / LEASE

    def name(self, number: int) -> str:
        """Return the lease's path."""
        return str(self._path(number))

    def numbers(self) -> list[int]:
        """Return the numbers of the leases that are there, as far as an NFS client knows."""
        try:
            return _numbers(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return []

    def read(self, number: int) -> Taken | None:
        """Return a lease, None where there is none."""
        try:
            with self._path(number).open("rb") as file:
                return Taken(file.read(), os.fstat(file.fileno()).st_mtime_ns)
        except FileNotFoundError:
            return None

    def beat(self, number: int) -> bool:
        """Touch the lease, at the server; False where it has been removed."""
        try:
            os.utime(self._path(number))
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def offer(self, content: bytes) -> Iterator[Offer]:
        """Write the lease aside; taking a number links it, which is exclusive and whole."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with draft(self._folder, content) as finished:
            made_ns = finished.stat().st_mtime_ns
            yield Offer(lambda: made_ns, lambda number: link(finished, self._path(number)))

    def clear(self, before: int) -> None:
        """Remove the leases with lower numbers."""
        for number in self.numbers():
            if number < before:
                self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.json"


class PlacedFiles:
    """Leases in a folder of a place that creates files exclusively and lists what there is."""

    def __init__(self, storage: Storage, folder: str = LEASE) -> None:
        self._storage = storage
        self._folder = folder

    def name(self, number: int) -> str:
        """Return the lease's address."""
        return f"{self._storage.place}/{self._lease(number)}"

    def numbers(self) -> list[int]:
        """Return the numbers of the leases that are there."""
        return _numbers(entry.name for entry in self._storage.entries(self._folder))

    def read(self, number: int) -> Taken | None:
        """Return a lease, None where there is none."""
        content = self._storage.read(self._lease(number))
        if content is None:
            return None
        own = {f"{number:08d}.json", f"{number:08d}.beat"}
        times = [e.time_ns for e in self._storage.entries(self._folder) if e.name in own]
        return Taken(content, max(times, default=0))

    def beat(self, number: int) -> bool:
        """Write the lease's heartbeat; False where the lease has been removed."""
        self._storage.write(self._file(number, "beat"), b"")
        return number in self.numbers()

    @contextmanager
    def offer(self, content: bytes) -> Iterator[Offer]:
        """Taking a number creates its file; raises :class:`ConfigurationError` where it could be
        several trainers' at once.
        """
        storage = self._storage
        yield Offer(storage.now_ns, lambda number: storage.create(self._lease(number), content))

    def clear(self, before: int) -> None:
        """Leave them: the highest number holds."""

    def _lease(self, number: int) -> str:
        return self._file(number, "json")

    def _file(self, number: int, kind: str) -> str:
        name = f"{number:08d}.{kind}"
        return f"{self._folder}/{name}" if self._folder else name


def _numbers(names: Iterable[str]) -> list[int]:
    stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    return [int(stem) for stem in stems if stem.isdecimal()]
