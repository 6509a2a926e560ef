"""Writing the node's log without ever harming the training: no error leaves this module."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from airflow_ett.events import Event, LogWriter
from airflow_ett.trainer.place import Place

_log = logging.getLogger("airflow_ett.trainer")


class Journal:
    """Numbers and writes a trainer's events, from any thread.

    The interval that is still open holds a number of its own beforehand, under which the cursor
    file has it: whoever closes it after a kill writes the same event. It writes nothing before
    :meth:`open`; ``place`` is None outside a launched job.
    """

    def __init__(self, place: Place | None) -> None:
        self._log: LogWriter | None = None
        self._attempt = place.attempt if place else None
        self._rank = place.rank if place else None
        self._lock = threading.Lock()
        self._next = 0
        self._free: list[int] = []
        self._warned: set[str] = set()

    def open(self, log: LogWriter | None) -> None:
        """Write to ``log`` from here on; None for a process that writes none."""
        with self._lock:
            self._log = log
            self._next = max(self._next, log.next_seq if log else 0)

    def emit(
        self,
        kind: str,
        data: Mapping[str, Any] | None = None,
        *,
        time_ns: int | None = None,
        seq: int | None = None,
    ) -> None:
        """Write one event; ``time_ns`` defaults to now, ``seq`` to the next number."""
        log = self._log
        if log is None:
            return
        try:
            with self._lock:
                event = Event(
                    job=log.job,
                    writer=log.writer,
                    seq=self._take() if seq is None else seq,
                    time_ns=time.time_ns() if time_ns is None else time_ns,
                    kind=kind,
                    attempt=self._attempt,
                    rank=self._rank,
                    data=data or {},
                )
                log.copy(event)
        except (OSError, ValueError, TypeError) as error:
            # Without the lock: a handler of the user's logging may well have phases of its own.
            self.warn(f"Events are lost: {log.path} cannot be written", error)

    def reserve(self) -> int:
        """Take a number for an event to be written later."""
        with self._lock:
            return self._take()

    def release(self, seq: int) -> None:
        """Give a reserved number back, so that none is missing in the log."""
        with self._lock:
            self._free.append(seq)

    def warn(self, problem: str, error: BaseException) -> None:
        """Warn about a problem, once."""
        if problem not in self._warned:
            self._warned.add(problem)
            _log.warning("%s: %s: %s. The training goes on.", problem, type(error).__name__, error)

    def close(self) -> None:
        """Write nothing from here on."""
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    def abandon(self) -> None:
        """Forget the log without a word: for the child of a fork, whose lock may be held."""
        self._log = None

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1
