"""Reading an output that is still being written, from an offset that outlives the reader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

_CHUNK = 1 << 20
_TAIL = 1 << 16
_POLL_S = 0.2


class Stored(Protocol):
    """What a replica prints, in one file; ``str`` of it is where people find that."""

    def read(self, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes from ``offset`` on. Raises ``OSError``."""

    def size(self) -> int:
        """Return how many bytes there are. Raises ``OSError``."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """An output in a file that this machine sees."""

    path: Path

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`Stored`."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def size(self) -> int:
        """See :class:`Stored`."""
        return self.path.stat().st_size

    def __str__(self) -> str:
        return str(self.path)


class Chunk(NamedTuple):
    """Text from a log, and how far it moves the offset: the bytes that it took in a file."""

    text: str
    length: int


@runtime_checkable
class Stamped(Protocol):
    """What a replica prints, told with the time of each line: its offsets are such times, in ns."""

    def after(self, mark: int, *, partial: bool) -> Chunk | None:
        """Return the lines that came after ``mark``, as :func:`read` does."""

    def tail(self, count: int) -> list[str]:
        """Return the last lines, as :func:`tail` does."""


Output: TypeAlias = Stored | Stamped


def read(output: Output, offset: int, *, partial: bool) -> Chunk | None:
    """Return what follows ``offset``: whole lines, at most 1 MiB; None when there is nothing yet.

    ``partial`` takes an unfinished last line, too, as a chunk without any line end always is.
    """
    if isinstance(output, Stamped):
        return output.after(offset, partial=partial)
    try:
        content = output.read(offset, _CHUNK)
    except OSError:
        return None
    whole = content.rfind(b"\n") + 1
    if not whole and (partial or len(content) == _CHUNK):
        whole = len(content)
    return Chunk(content[:whole].decode(errors="replace"), whole) if whole else None


def tail(output: Output, lines: int) -> list[str]:
    """Return the last lines (of the last 64 KiB), without their line ends; none when unreadable."""
    if isinstance(output, Stamped):
        return output.tail(lines)
    try:
        content = output.read(max(0, output.size() - _TAIL), _TAIL)
    except OSError:
        return []
    return content.decode(errors="replace").splitlines()[-lines:]


def follow(output: Output, over: Callable[[], bool]) -> Iterator[str]:
    """Yield lines as they come, until all is read that was there when ``over`` was true."""
    offset, ended = 0, False
    while not ended:
        ended = over()
        while chunk := read(output, offset, partial=ended):
            offset += chunk.length
            yield from chunk.text.splitlines(keepends=True)
        if not ended:
            time.sleep(_POLL_S)
