"""A place in memory that can be away, lose answers, and refuse events and files."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from airflow_ett.errors import EventLogError
from airflow_ett.events import Event
from airflow_ett.storage import Entry


class Fault(OSError):
    """The place is away, or its answer got lost."""


class MemoryPlace:
    """A :class:`airflow_ett.storage.Storage` that does as ``fault`` says at each request.

    ``fault`` is called with the method's name: ``"away"`` does nothing and fails, ``"lost"`` does
    it and fails, ``""`` is all right. ``refuses`` says which events are none to it.
    """

    place = "memory://place"

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self.logs: dict[str, list[Event]] = {}
        self.batches: list[int] = []
        self.requests: Counter[str] = Counter()
        self.fault: Callable[[str], str] = lambda method: ""
        self.refuses: Callable[[Event], bool] = lambda event: False
        self.written: Callable[[str], None] = lambda name: None
        self.clock_ns = 1_000_000_000_000
        self._lock = threading.RLock()

    def create(self, name: str, content: bytes) -> bool:
        return self._do("create", lambda: self._create(name, content))

    def write(self, name: str, content: bytes) -> None:
        self._do("write", lambda: self._write(name, content))

    def read(self, name: str) -> bytes | None:
        return self._do("read", lambda: self.files.get(name, (None, 0))[0])

    def remove(self, name: str) -> None:
        raise PermissionError("a trainer removes nothing")

    def entries(self, folder: str, *, fresh: bool = True) -> list[Entry]:
        return self._do("entries", lambda: self._entries(folder))

    def append(self, log: str, events: Sequence[Event]) -> None:
        self._do("append", lambda: self._append(log, events))

    def events(self, folder: str) -> Iterable[Event]:
        return [event for log in sorted(self.logs) for event in self.logs[log]]

    def now_ns(self) -> int:
        return self._do("now_ns", lambda: self.clock_ns)

    def numbers(self) -> dict[str, list[int]]:
        """The numbers of each writer's events in order of their first arrival."""
        found: dict[str, list[int]] = {}
        for event in self.events("nodes"):
            known = found.setdefault(event.writer, [])
            if event.seq not in known:
                known.append(event.seq)
        return found

    def _do(self, method: str, act: Callable[[], Any]) -> Any:
        with self._lock:
            self.requests[method] += 1
            self.clock_ns += 1_000_000
            fault = self.fault(method)
            if fault == "away":
                raise Fault("the place is away")
            result = act()
            if fault == "lost":
                raise Fault("the answer got lost")
            return result

    def _create(self, name: str, content: bytes) -> bool:
        return self.files.setdefault(name, (content, self.clock_ns))[0] == content

    def _write(self, name: str, content: bytes) -> None:
        if len(content) > 2**20:
            raise OSError(errno.EFBIG, "too large")
        self.files[name] = content, self.clock_ns
        self.written(name)

    def _entries(self, folder: str) -> list[Entry]:
        begin = f"{folder}/" if folder else ""
        names = {
            n.removeprefix(begin): facts for n, facts in self.files.items() if n.startswith(begin)
        }
        return [Entry(n, names[n][1]) for n in sorted(names) if "/" not in n]

    def _append(self, log: str, events: Sequence[Event]) -> None:
        self.batches.append(len(events))
        taken = [event for event in events if not self.refuses(event)]
        self.logs.setdefault(log, []).extend(taken)
        if len(taken) < len(events):
            raise EventLogError(f"{len(events) - len(taken)} are none. The others are stored.")
