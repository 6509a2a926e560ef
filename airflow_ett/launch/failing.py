"""The process of an attempt that failed first, and how that is told. Pure."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SIGNALLED = 128
"""A shell's exit code of a command that was killed, less the signal's number."""

_SIGNALS = 64
_LONGEST = 8_000
"""Characters of an exception's message, and of its traceback."""


@dataclass(frozen=True, slots=True)
class Failing:
    """The process that failed first; what nobody told is None.

    ``name`` is what it is called, ``replica`` its rank or the scheduler's number of it, ``node``
    whose output holds its last words. ``error`` is an exception's type, message and traceback.
    ``terminated`` says that its node had got SIGTERM before; ``silent`` that a whole node ended of
    which nobody told how.
    """

    source: str
    name: str
    replica: int | None = None
    node: int | None = None
    host: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: Mapping[str, Any] | None = None
    terminated: bool = False
    silent: bool = False
    oom_kills: int = 0

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, also where only a shell's exit code tells."""
        code = self.exit_code
        if self.signal is None and code is not None and 0 < code - _SIGNALLED <= _SIGNALS:
            return code - _SIGNALLED
        return self.signal

    @property
    def place(self) -> str:
        """Its name and host, in words."""
        return f"{self.name} on {self.host}" if self.host else self.name

    @property
    def how(self) -> str:
        """How it ended, in words."""
        number = self.killed_by
        if self.silent:
            return "without a word"
        if number is None:
            return "exit code unknown" if self.exit_code is None else f"exit code {self.exit_code}"
        with contextlib.suppress(ValueError):
            return f"signal {number} ({signal.Signals(number).name})"
        return f"signal {number}"

    def facts(self) -> dict[str, Any]:
        """Return what evidence tells of it."""
        names = ("replica", "node", "host", "exit_code", "signal")
        told = {name: getattr(self, name) for name in names}
        return told | ({"error": _bounded(self.error)} if self.error else {})


def _bounded(error: Mapping[str, Any]) -> dict[str, str]:
    """Return an exception's parts: the head of its message, the tail of its traceback."""
    parts = {name: str(error.get(name) or "") for name in ("type", "message", "traceback")}
    return {
        name: text[-_LONGEST:] if name == "traceback" else text[:_LONGEST]
        for name, text in parts.items()
    }
