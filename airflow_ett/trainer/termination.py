"""SIGTERM: noted at once, acted upon between two steps."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


class Termination:
    """Remembers the first SIGTERM. The handler sets a flag and a time, then calls the former one.

    Installed in the main thread only, where Python allows it. ``noted`` is called in the handler
    and must be safe there.
    """

    def __init__(self, noted: Callable[[], None]) -> None:
        self._noted = noted
        self._former: Any = None
        self._installed = False
        self.received_ns: int | None = None

    def install(self) -> None:
        """Take SIGTERM over."""
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def restore(self) -> None:
        """Put the former handler back."""
        if self._installed and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._former or signal.SIG_DFL)
        self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received_ns is None:
            self.received_ns = time.time_ns()
            self._noted()
        if callable(self._former):
            self._former(number, frame)
