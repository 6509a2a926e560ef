"""What a container prints, through the Engine, which tells the time of each line and no offset.

So the offset is a time here: that of the last line that was read, in nanoseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from docker.errors import NotFound

from airflow_ett.launch.schedulers.docker.states import time_ns
from airflow_ett.launch.schedulers.logs import Chunk

_CHUNK = 1 << 20
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """The output of a container; ``str`` of it is its address at the Engine."""

    api: Any
    container: str

    def after(self, mark: int, *, partial: bool) -> Chunk | None:
        """Return the lines that came after ``mark``, as :func:`logs.read` does.

        A chunk's length is what leads from ``mark`` to the time of its last line.
        """
        lines: list[bytes] = []
        size, last_ns = 0, mark
        since = {"since": mark // _SECOND} if mark >= _SECOND else {}
        for line in self._lines(**since):
            stamp, _, text = line.partition(b" ")
            told_ns = time_ns(stamp.decode(errors="replace"))
            if (told_ns or last_ns) <= mark or not (partial or text.endswith(b"\n")):
                continue
            last_ns = told_ns or last_ns
            lines.append(text if told_ns else line)
            size += len(line)
            if size > _CHUNK:
                break
        if not lines:
            return None
        return Chunk(b"".join(lines).decode(errors="replace"), last_ns - mark)

    def tail(self, count: int) -> list[str]:
        """Return the last lines, without their ends."""
        told = b"".join(line.partition(b" ")[2] for line in self._lines(tail=count))
        return told.decode(errors="replace").splitlines()

    def _lines(self, **options: int) -> Iterator[bytes]:
        """Yield what the Engine has, line by line; nothing where there is no such container."""
        rest = b""
        with contextlib.suppress(NotFound):
            frames = self.api.logs(
                self.container,
                stdout=True,
                stderr=True,
                timestamps=True,
                stream=True,
                follow=False,
                **options,
            )
            with contextlib.closing(frames):
                for frame in frames:
                    *whole, rest = (rest + frame).split(b"\n")
                    yield from (line + b"\n" for line in whole)
        if rest:
            yield rest

    def __str__(self) -> str:
        return f"{self.api.base_url}/containers/{self.container}/logs?stdout=1&stderr=1"
