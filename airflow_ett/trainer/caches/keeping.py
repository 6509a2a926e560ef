"""One thread that saves when it is asked to: one save at a time, the latest state last."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Keeper:
    """Calls ``save``, which must not raise, beside the training."""

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._lock = threading.Lock()
        self._asked = False
        self._idle = threading.Event()
        self._idle.set()

    def ask(self) -> None:
        """Have it saved now, or once more if a save is under way.

        Raises ``RuntimeError`` where no thread can be had.
        """
        with self._lock:
            self._asked = True
            if self._idle.is_set():
                threading.Thread(target=self._work, name="ett_keeper", daemon=True).start()
                self._idle.clear()

    def wait(self, within_s: float) -> bool:
        """Return whether all that was asked for is done, after so many seconds at most."""
        return self._idle.wait(within_s)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._idle.set()
                    return
                self._asked = False
            self._save()
