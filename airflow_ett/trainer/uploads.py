"""A save's second half: writing and committing, beside the training or at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from airflow_ett.checkpoints.layout import Folder
from airflow_ett.trainer.saveerrors import is_failure

if TYPE_CHECKING:
    from airflow_ett.trainer.staging import Copy


class Upload:
    """Runs ``work`` for the state at ``cursor``; ``done`` is called at its end.

    The thread is a daemon: a write that hangs must not keep the process from ending.
    """

    def __init__(self, cursor: int, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.cursor = cursor
        self.begun_ns = time.monotonic_ns()
        self.error: BaseException | None = None
        """What went wrong, once it is over."""
        self.over = False
        self._work = work
        self._done = done
        self._thread = threading.Thread(target=self._run, name="checkpoint_upload", daemon=True)

    def start(self, *, background: bool) -> None:
        """Do the work on a thread, or here and now. What it raises is kept in ``error``."""
        if background:
            self._thread.start()
        else:
            self._run()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most ``timeout`` seconds; return whether it has come."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return self.over

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            if not is_failure(error):
                raise
            self.error = error
        self.over = True
        self._done()


class Untold(NamedTuple):
    """A save that is not in the log yet: it may still come to block the training."""

    upload: Upload
    copying: Copy | None
    begun_ns: int
    staged_ns: int
    """When what was taken at once was."""
    blocking_ns: int
    typical: bool
    path: Folder
