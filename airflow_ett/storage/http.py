"""The API as a place: for sites whose launchers and trainers share no storage."""

from __future__ import annotations

import errno
import gzip
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from airflow_ett.errors import ConfigurationError, EventLogError
from airflow_ett.events import Event, decode, encode
from airflow_ett.storage.access import MOST_FILE, MOST_LINES
from airflow_ett.storage.names import checked_file, checked_folder, checked_log
from airflow_ett.storage.protocol import Entry
from airflow_ett.storage.transport import Transport

NEXT = "ETT-Next"
PATIENCE_S = 20.0
"""For how long a request is repeated, unless told otherwise."""

_PLACE = re.compile(r"(?P<base>https?://[^/?#@]+(?:/[^?#]*)?)/logs/(?P<job>[0-9a-f]{20})/?")
_BYTES_AT_ONCE = 2**20
_LINES_AT_ONCE = MOST_LINES // 2
_TOLD = 3


class HttpStorage:
    """A :class:`airflow_ett.storage.Storage` in the API, at ``<api_url>/ett/api/v1/logs/<job id>``.

    Threads may share it, and connections are kept for the next request. ``token`` returns the job's
    token; it is renewed here. ``patience_s`` bounds how long a request is repeated that gets no
    answer, status 429 or 5xx; :class:`PermissionError` says that the token is refused. Proxies and
    certificates are those of the environment, as ``requests`` reads it.

    Raises :class:`ConfigurationError` for what is no such address, and without ``requests``.
    """

    def __init__(
        self,
        place: str,
        token: Callable[[], str] | None = None,
        *,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        found = _PLACE.fullmatch(place)
        if found is None:
            problem = "the place of a job is <api_url>/ett/api/v1/logs/<job id>, without a password"
            raise ConfigurationError("[ett] api_url", problem)
        self.place = place.rstrip("/")
        self._log = f"/logs/{found['job']}"
        self._api = Transport(
            found["base"], token or (lambda: ""), patience_s=patience_s, sleep=sleep
        )

    def create(self, name: str, content: bytes) -> bool:
        """Make a file for one of several alone; False where another content has that name."""
        return self._put(name, content, {"If-None-Match": "*"}) == 201

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, in place of the former one."""
        self._put(name, content, {})

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None where there is none."""
        answer = self._api.ask("GET", self._file(name), accept=(200, 404))
        return answer.content if answer.status_code == 200 else None

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none. A launcher's token is needed."""
        self._api.ask("DELETE", self._file(name), accept=(204,))

    def entries(self, folder: str, *, fresh: bool = True) -> list[Entry]:
        """Return the files of a folder as they are now, by name; none without the folder."""
        params = {"folder": checked_folder(folder)}
        answer = self._api.ask("GET", f"{self._log}/files", accept=(200,), params=params)
        return [Entry(one["name"], one["time_ns"]) for one in answer.json()]

    def append(self, log: str, events: Sequence[Event]) -> None:
        """Append events; the API tells by their writers whether they are a launcher's or a node's.

        Raises :class:`EventLogError` for events that the API takes not: all others are stored then,
        and the caller may go on after them.
        """
        checked_log(log)
        problems: list[str] = []
        for lines in _portions(events):
            answer = self._api.ask(
                "POST",
                "/events",
                accept=(200,),
                content=gzip.compress(b"".join(lines), 1),
                headers={"Content-Encoding": "gzip", "Content-Type": "application/jsonl"},
            )
            for bad in answer.json()["rejected"]:
                event = decode(lines[bad["line"] - 1])
                problems.append(f"event {event.seq} of {event.writer:.40}: {bad['problem']}")
        if problems:
            more = f" and {len(problems) - _TOLD} more" if len(problems) > _TOLD else ""
            raise EventLogError(
                f"{self.place} takes not all of {len(events)} events: "
                f"{'; '.join(problems[:_TOLD])}{more}. The others are stored."
            )

    def events(self, folder: str) -> Iterator[Event]:
        """Yield what launchers (``launcher``) or nodes (``nodes``) wrote, writer by writer."""
        params = {"folder": checked_folder(folder)}
        while True:
            answer = self._api.ask("GET", f"{self._log}/events", accept=(200,), params=params)
            yield from map(decode, answer.content.splitlines())
            if NEXT not in answer.headers:
                return
            params["after"] = answer.headers[NEXT]

    def now_ns(self) -> int:
        """Return what the clock of the API's database says."""
        return int(self._api.ask("GET", "/clock", accept=(200,)).json()["now_ns"])

    def _put(self, name: str, content: bytes, headers: Mapping[str, str]) -> int:
        path = self._file(name)
        if len(content) > MOST_FILE:  # the API would hang up on it, which looks like an accident
            text = f"{os.strerror(errno.EFBIG)}: the API takes {MOST_FILE} bytes"
            raise OSError(errno.EFBIG, text, name)
        accept = (201, 412) if headers else (204,)
        return self._api.ask(
            "PUT", path, accept=accept, content=content, headers=headers
        ).status_code

    def _file(self, name: str) -> str:
        return f"{self._log}/files/{quote(checked_file(name))}"


def _portions(events: Sequence[Event]) -> Iterator[list[bytes]]:
    """Yield the events' lines, as many at once as a request may bring."""
    lines: list[bytes] = []
    size = 0
    for line in map(encode, events):
        if lines and (len(lines) == _LINES_AT_ONCE or size + len(line) > _BYTES_AT_ONCE):
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield lines
