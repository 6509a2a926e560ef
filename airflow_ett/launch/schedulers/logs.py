"""Reading a log file that is still being written, from an offset that outlives the reader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_CHUNK = 1 << 20
_TAIL = 1 << 16
_POLL_S = 0.2


class Chunk(NamedTuple):
    """Text from a log and the number of bytes it took there."""

    text: str
    length: int


def read(path: Path, offset: int, *, partial: bool) -> Chunk | None:
    """Return what follows ``offset``: whole lines, at most 1 MiB; None when there is nothing yet.

    ``partial`` takes an unfinished last line, too, as a chunk without any line end always is.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(_CHUNK)
    except OSError:
        return None
    whole = content.rfind(b"\n") + 1
    if not whole and (partial or len(content) == _CHUNK):
        whole = len(content)
    return Chunk(content[:whole].decode(errors="replace"), whole) if whole else None


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines (of the last 64 KiB), without their line ends; none when unreadable."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            content = file.read()
    except OSError:
        return []
    return content.decode(errors="replace").splitlines()[-lines:]


def follow(path: Path, over: Callable[[], bool]) -> Iterator[str]:
    """Yield lines as they come, until all is read that was there when ``over`` was true."""
    offset, ended = 0, False
    while not ended:
        ended = over()
        while chunk := read(path, offset, partial=ended):
            offset += chunk.length
            yield from chunk.text.splitlines(keepends=True)
        if not ended:
            time.sleep(_POLL_S)
