"""What launchers and trainers need of the place where a job's log lies.

A place holds one job: small files under the names that the run directory has
(``launcher/claims/…``, ``launcher/submissions/…``, ``replies/…``, ``nodes/heartbeat-…``,
``cursor``), and the logs that its writers append to. Nothing is ever renamed, and only what is
created exclusively coordinates.

Every method raises ``OSError`` while the place cannot be reached: then nobody knows what it holds.
``PermissionError`` says that it never will be without another secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from airflow_ett.events import Chunk, Event


class Entry(NamedTuple):
    """A file of a place: its name within its folder, and when it was written last.

    Times are those of the place's own clock: only their differences mean something.
    """

    name: str
    time_ns: int


class Storage(Protocol):
    """One job's files and logs. Threads may share it."""

    @property
    def place(self) -> str:
        """The folder or address, as :func:`airflow_ett.storage.open_storage` takes it.

        It holds no secret.
        """

    def create(self, name: str, content: bytes) -> bool:
        """Make a file, whole, for one of several alone; False where there is one of that name.

        An answer that got lost and was asked for again counts as the first: True where the file
        holds this very content.
        """

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, in place of the former one."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None where there is none."""

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""

    def entries(self, folder: str, *, fresh: bool = True) -> list[Entry]:
        """Return the files of a folder as they are now, by name; none without the folder.

        Not ``fresh`` it may be a listing that is a minute old, where that is cheaper.
        """

    def append(self, log: str, events: Sequence[Event]) -> None:
        """Append a writer's events to its log, such as ``launcher/e00000001.jsonl``.

        Events may arrive twice, after an answer that got lost: readers keep one per number.
        """

    def events(self, folder: str) -> Iterable[Event]:
        """Return what the logs of ``launcher`` or ``nodes`` hold, log by log in order of names."""

    def now_ns(self) -> int:
        """Return what the place's clock says."""


class Readable(Storage, Protocol):
    """A place from which an ingest reads on where it had stopped."""

    def logs(self) -> list[str]:
        """Return the names of all logs, the launchers' first."""

    def read_log(self, log: str, offset: int = 0) -> Chunk:
        """Read a log's whole lines from ``offset`` on: bytes of a file, or numbers of chunks.

        One that does not reach to ``offset`` any more was replaced, and is read from its begin.
        """

    def logged_ns(self) -> int | None:
        """Return when a log was last written to; None where there is none."""

    def heartbeat_ns(self) -> int | None:
        """Return when an agent of the job last lived, by this computer's clock; None where none
        did."""
