"""SIGTERM: noted at once, acted upon where the training's state is whole.

That is between two steps: at the end of ``step()``, where several ranks agree first, and when the
loop asks for its next batch. Nothing is interrupted, since only there the weights, the cursor and
whatever else is saved belong together: an evaluation may have put other weights in, a half-done
step has drawn random numbers. What each stage comes to:

===================  ===============================  ==========================================
stage at SIGTERM     one process                      several ranks
===================  ===============================  ==========================================
before the Session   dies of it; nothing to save      the same
init, first batch    ends before the first step;      trains to the next agreement, at most about
                     nothing to save                  a second of steps, and saves there
step, compile in it  the step ends, is saved          all agree within a second of steps, save
waiting for a batch  the batch is trained, saved      the same, at the agreed step
evaluation in loop   saved at the request after it;   saved at the agreed step after it
                     ``if ett.preempted: break`` in
                     it makes that soon
saving               goes on; what was trained since  the same, at the agreed step
                     is saved after it, never beside
after the loop       what was not saved is saved      what is under way (the anchor) goes on
===================  ===============================  ==========================================

A script that exits by itself after SIGTERM is preempted, too, whatever its exit code; what it had
begun to change is not saved. Where a stage outlasts the grace, the newest committed checkpoint is
what is left.

Where the agent says that a peer is gone (:mod:`airflow_ett.trainer.notice`), several ranks agree
and save no more: they end after the step. Under another launcher the ranks agree all the same: that
they all answer shows that they live. A process that our agent stopped ends with 143 shortly before
its SIGKILL even if it hangs by then.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from airflow_ett.trainer.notice import Notice, read_notice

PREEMPTED_EXIT = 143

_MARGIN_S = 0.2


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

    def bereaved(self) -> Notice | None:
        """Return the agent's notice where it stops this rank because a peer is gone."""
        notice = read_notice() if self.received_ns is not None else None
        return notice if notice is not None and not notice.preemption else None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received_ns is None:
            self.received_ns = time.time_ns()
            self._noted()
            # A Thread object takes locks that the interrupted code may hold; this takes none.
            with contextlib.suppress(RuntimeError):  # no thread to be had: SIGKILL ends it, then
                _thread.start_new_thread(_end_in_time, (time.monotonic(),))
        if callable(self._former):
            self._former(number, frame)


def _end_in_time(received_s: float) -> None:
    """End the process just before the agent kills it: whatever still goes on then hangs."""
    notice = read_notice()
    if notice is None:
        return  # nobody said when
    time.sleep(max(0.0, received_s + notice.grace_s - _MARGIN_S - time.monotonic()))
    text = f"airflow_ett: still busy {notice.grace_s:g} s after SIGTERM: ended before SIGKILL\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    os._exit(PREEMPTED_EXIT)
