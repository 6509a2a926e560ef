"""Where a triggerer's blocking calls run: beside its event loop, in threads of bounded number.

Hundreds of triggers may look at a scheduler that takes seconds to answer: their looks wait in one
line for :data:`LOOKS`. Airflow waits for a kill no longer than half a minute, so kills have
threads of their own, :data:`KILLS`, which no look ever takes. Where all looks hang, trainings whose
deadline has passed are still looked at, in :data:`LATE`.

Threads start when they are first needed and are daemons: a call that hangs keeps no triggerer from
stopping. Nothing is lost by that, since whatever must survive is in the job's log before it is
done.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Pool:
    """At most ``size`` threads, which run calls in the order in which they came.

    Usable from any thread and any event loop.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started = 0

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Have ``function`` called in the caller's context; a future cancelled in time never is."""
        future: Future[T] = Future()
        self._calls.put(partial(_fulfil, future, partial(contextvars.copy_context().run, function)))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._started < self._size:
                self._started += 1
                name = f"{self._name}-{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            self._calls.get()()
            self._idle.release()


def _fulfil(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


LOOKS = Pool("ett-look", 32)
"""Two hundred jobs are each looked at every half a minute where an answer takes 5 s. More threads
would compete with the event loop for the interpreter where answers are fast."""

LATE = Pool("ett-late", 32)
"""As many as for other looks: the deadlines of all trainings of a run may pass at once."""

KILLS = Pool("ett-kill", 16)
"""A user who ends a DAG run may end hundreds of trainings at once."""
