"""What a replica prints, through the API server, which tells the time of each line and no offset.

So the offset is a time here: that of the last line that was read, in nanoseconds. It holds whoever
goes on reading, also in the pod that follows when a job is started again, and when a node has
begun a new file since.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.kubernetes.answers import time_ns
from airflow_ett.launch.schedulers.kubernetes.api import Api, answered
from airflow_ett.launch.schedulers.logs import Chunk

_CHUNK = 1 << 20
_MOST = 1 << 26
_CLOCKS_S = 10
"""By so much the clocks of this machine and of a node may differ."""


@dataclass(frozen=True, slots=True)
class PodLog:
    """The output of a pod's container; ``str`` of it is its address at the API server."""

    api: Api
    namespace: str
    pod: str
    container: str

    def after(self, mark: int, *, partial: bool) -> Chunk | None:
        """Return the lines that came after ``mark``, as :func:`logs.read` does.

        A chunk's length is what leads from ``mark`` to that of its last line.
        """
        limit = _CHUNK
        while limit <= _MOST:
            said = self._said(limit_bytes=limit, **_since(mark))
            whole, rest = said.rpartition(b"\n")[::2]
            cut = len(said) >= limit
            lines = list(_lines(whole))
            if rest and partial and not cut:
                lines += _lines(rest, end=b"")
            new = [(ns, line) for ns, line in lines if ns > mark]
            if new:
                text = b"".join(line for _, line in new).decode(errors="replace")
                return Chunk(text, new[-1][0] - mark)
            if not cut:
                return None
            limit *= 4  # all of it was read before: it was printed in less than the clocks differ
        return None

    def tail(self, count: int) -> list[str]:
        """Return the last lines, without their ends."""
        said = self._said(tail_lines=count)
        return [line.decode(errors="replace") for _, line in _lines(said.rstrip(b"\n"), end=b"")]

    def _said(self, **options: int) -> bytes:
        """Return what the server has; nothing where the container has not begun, or is gone."""
        try:
            return self.api.log(self.namespace, self.pod, container=self.container, **options)
        except LaunchError as error:
            if answered(error) in (400, 404):
                return b""
            raise

    def __str__(self) -> str:
        path = f"api/v1/namespaces/{self.namespace}/pods/{self.pod}/log"
        return f"{self.api.server}/{path}?container={self.container}"


def _since(mark: int) -> dict[str, int]:
    age_s = time.time() - mark / 1e9
    return {"since_seconds": max(1, int(age_s)) + _CLOCKS_S} if mark else {}


def _lines(said: bytes, end: bytes = b"\n") -> Iterator[tuple[int, bytes]]:
    """Yield time and text of each line; one without a time belongs to the line before."""
    last_ns = 0
    for line in said.split(b"\n") if said else ():
        stamp, _, text = line.partition(b" ")
        try:
            last_ns = time_ns(stamp.decode())
        except ValueError:
            text = line
        yield last_ns, text + end
