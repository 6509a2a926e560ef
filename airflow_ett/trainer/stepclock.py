"""The step clock: cuts the main lane's time outside phases into intervals that leave no gap.

It is always in one mode: waiting for a batch, in a step, or elsewhere in the loop. A phase pauses
it. Its own numbers are of the monotonic clock; what it writes is that plus one fixed offset, so
that intervals and phases join to the nanosecond. Only the main thread drives it.
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from airflow_ett.events import CursorFile, Kind
from airflow_ett.trainer.journal import Journal

_Batch = TypeVar("_Batch")

INTERVAL_NS = 10_000_000_000
"""The longest time after which an interval is closed."""

_MOST = (1 << 62) - 1  # what the cursor file can hold, with room to spare
_IDLE, _WAIT, _STEP, _OTHER, _PAUSED = range(5)
_mono = time.monotonic_ns


class StepClock:
    """Counts steps and their time up to the cursor, and writes it as ``interval`` events.

    ``identity`` is (submission, scheduler restart, elastic restart, rank, pid), ``offset`` turns
    monotonic into UTC nanoseconds. ``on_edge`` is called now and then between two steps and returns
    the monotonic time at which it wants to be called again at the latest.
    """

    __slots__ = (
        "_base",
        "_ceiling",
        "_close_at",
        "_cursor_file",
        "_edge_at",
        "_hwm",
        "_identity",
        "_journal",
        "_looping",
        "_mark",
        "_micro",
        "_mode",
        "_offset",
        "_on_edge",
        "_pauses",
        "_resumes_as",
        "_seq",
        "_start",
        "_start_cursor",
        "_step_ns",
        "_steps",
        "_tracked",
        "_wait_ns",
        "cursor",
        "each_step",
        "stop",
    )

    def __init__(
        self,
        journal: Journal,
        identity: tuple[int, int, int, int, int],
        *,
        offset: int,
        on_edge: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._cursor_file: CursorFile | None = None
        self._identity = identity
        self._hwm = self._ceiling = 0
        self._offset = offset
        self._on_edge = on_edge
        self.cursor = self._base = self._start_cursor = 0
        self.stop = False
        self.each_step: Callable[[], None] | None = None
        self._mode = self._resumes_as = _IDLE
        self._tracked = self._looping = False
        self._pauses = 0
        self._micro: tuple[int, int, int] | None = None
        self._start = self._mark = self._steps = self._step_ns = self._wait_ns = 0
        self._seq = -1
        self._close_at = self._edge_at = 0

    @property
    def idle(self) -> bool:
        """Whether nothing was requested yet, or the clock has been finished."""
        return self._mode == _IDLE

    @property
    def hwm(self) -> int:
        """The high-water mark: the largest cursor ever reached, in global samples."""
        return max(self._hwm, self.cursor)

    def keep(self, cursor_file: CursorFile | None, hwm: int) -> None:
        """Keep the cursor in this file, None where another process does.

        ``hwm`` is the high-water mark known so far.
        """
        self._cursor_file = cursor_file
        self._hwm = self._ceiling = max(self._hwm, hwm)

    def restart(self, cursor: int, hwm: int) -> None:
        """Stand at a restored cursor; ``hwm`` raises the high-water mark."""
        self._hwm = self._ceiling = max(self._hwm, hwm)
        self.cursor = self._base = self._start_cursor = cursor

    def hurry(self) -> None:
        """Have the interval closed and ``on_edge`` called after the present step; any thread.

        Between two steps at once, when the loop asks for its next batch.
        """
        self._close_at = self._edge_at = 0

    def request(self, cursor: int | None) -> int:
        """The loop asks a loader, whose first batch lies at ``cursor``, for its first batch.

        Returns when, in monotonic nanoseconds.
        """
        now = _mono()
        if cursor is not None:
            cursor = self._sane(cursor, base=0)
        if cursor is not None and cursor != self.cursor:
            self._jump(cursor, now)
        self._base = self.cursor
        self._tracked = self._looping = True
        if self.idle:
            self._open(now)
        if self._mode == _PAUSED:
            self._resumes_as = _WAIT
        else:
            self._mark = now
            self._mode = _WAIT
            self._frame(now)
        return now

    def track(self, loader: Callable[[], Iterable[_Batch]]) -> Iterator[_Batch]:
        """Yield a loader's batches, telling waiting from working, until ``stop``.

        ``loader`` is called when the first batch is asked for, and calls :meth:`request`.
        """
        try:
            for batch in loader():
                now = _mono()
                if self._mode == _WAIT:
                    self._wait_ns += now - self._mark
                    self._mark = now
                    self._mode = _STEP
                yield batch
                if self.stop:
                    break
                now = _mono()
                if self._mode == _OTHER:
                    if now >= self._edge_at:  # SIGTERM since the step, or a long evaluation
                        self._edge(now)
                        if self.stop:
                            break
                        now = _mono()
                    self._mark = now
                    self._mode = _WAIT
                elif self._mode == _STEP:
                    self._next_micro_batch(now)
        finally:
            self.leave_loop()

    def step(self, samples: int) -> None:
        """End a step: ``samples`` of the present loader are trained."""
        now = _mono()
        cursor = self._base + samples if type(samples) is int else -1
        if not self.cursor <= cursor <= self._ceiling:
            cursor = self._odd_cursor(samples)
        if self._mode == _STEP:
            self._step_ns += now - self._mark
            self._micro = None
        elif self._mode != _OTHER:
            self._odd_step(cursor, now)
            return
        self.cursor = cursor
        self._steps += 1
        self._mode = _OTHER if self._tracked else _STEP
        self._mark = now
        if self._cursor_file is not None:
            self._cursor_file.step(
                cursor, now + self._offset, self._steps, self._step_ns, self._wait_ns
            )
        if now >= self._edge_at:
            self._edge(now)
        if self.each_step is not None:
            self.each_step()

    def pause(self, now: int) -> bool:
        """A phase begins at monotonic ``now``: close the interval there.

        False where there is nothing to pause: then :meth:`resume` must not be called for it.
        """
        if self.idle:
            return False
        self._pauses += 1
        if self._pauses == 1:
            self._settle(now)
            self._resumes_as, self._mode = self._mode, _PAUSED
            self._journal.release(self._seq)
            self._frame(now, closed=True)
        return True

    def resume(self, now: int) -> None:
        """The phase that paused the clock ends at monotonic ``now``."""
        self._pauses -= 1
        if self._pauses == 0:
            steps = self._steps
            self._open(now)
            self._steps = steps
            self._mark = now
            self._mode = self._resumes_as

    def edge(self, now: int) -> None:
        """Close the interval at monotonic ``now``, where a phase ends that paused nothing."""
        if self._mode not in (_IDLE, _PAUSED):
            self._settle(now)

    def leave_loop(self) -> None:
        """Nothing is requested any more; what was begun and not stepped is other time."""
        if self._mode == _WAIT:
            self._wait_ns += _mono() - self._mark
        self._looping = False
        if self._mode == _PAUSED:
            self._resumes_as = _OTHER
        elif self._mode != _IDLE:
            self._abandon_step()
            self._frame(_mono())

    def _sane(self, samples: object, base: int) -> int:
        """Return ``base`` and ``samples`` as a cursor; the present one where they make none."""
        try:
            cursor = base + whole(samples)
            if 0 <= cursor <= _MOST:
                return cursor
            raise OverflowError(f"{samples!r} leads out of the range of a cursor")
        except Exception as error:  # whatever the user's type raises must not reach the loop
            self._journal.warn("A step or cursor is no number of samples: it moves nothing", error)
            return self.cursor

    def _odd_cursor(self, samples: object) -> int:
        """Return the cursor of a step that passes the mark, goes back, or makes none."""
        cursor = self._sane(samples, self._base)
        if self._mode == _STEP and not self.cursor <= cursor <= self._ceiling:
            self._set_apart(cursor)
        return cursor

    def _odd_step(self, cursor: int, now: int) -> None:
        """A step that ends within a phase, which has its time; or the first one, untracked."""
        self.cursor = cursor
        mode = _OTHER if self._tracked else _STEP
        if self._mode == _PAUSED:
            self._steps += 1
            self._resumes_as = mode
        else:
            self._open(now)
            self._mark = now
            self._mode = mode

    def _jump(self, cursor: int, now: int) -> None:
        """Go on at another cursor than the one where the last loop ended."""
        if not self.idle:
            self._close(now)
        self._hwm = self.hwm
        if cursor < self.cursor:
            self._ceiling = self._hwm
        self.cursor = self._start_cursor = cursor
        if not self.idle:
            self._frame(now)

    def _abandon_step(self) -> None:
        """Book what was begun and never stepped to other: it moved no cursor."""
        if self._micro is not None:
            self._step_ns = self._micro[1]
            self._micro = None
        self._mode = _OTHER

    def _next_micro_batch(self, now: int) -> None:
        """A batch was asked for without a step: gradients are being accumulated."""
        if self._micro is None:
            self._micro = (self._mark, self._step_ns, self._wait_ns)
        self._step_ns += now - self._mark
        self._mark = now
        self._mode = _WAIT

    def _set_apart(self, cursor: int) -> None:
        """Give the step in progress an interval of its own: it passes the mark, or goes back."""
        self._split()
        self._hwm = self.hwm
        self._ceiling = self._hwm if cursor < self.cursor else _MOST
        self.hurry()

    def _edge(self, now: int) -> None:
        if now >= self._close_at:
            self._close(now)
        wanted = self._on_edge()
        self._edge_at = min(self._close_at, wanted)
        if self._close_at == 0:  # hurried meanwhile
            self._edge_at = 0

    def _settle(self, now: int) -> None:
        """Close the interval at ``now``, in the middle of whatever is going on."""
        in_step = self._mode == _STEP or self._micro is not None
        if in_step:
            self._split()
        if self._mode == _STEP:
            self._step_ns += now - self._mark
        elif self._mode == _WAIT:
            self._wait_ns += now - self._mark
        self._close(now, fragment=in_step)
        self._mark = now

    def _split(self) -> None:
        """Close the interval where the step in progress began, with its first micro-batch."""
        at, step_ns, wait_ns = self._micro or (self._mark, self._step_ns, self._wait_ns)
        rest = self._step_ns - step_ns, self._wait_ns - wait_ns
        self._step_ns, self._wait_ns = step_ns, wait_ns
        self._close(at)
        self._step_ns, self._wait_ns = rest
        self._micro = None

    def _close(self, at: int, *, fragment: bool = False) -> None:
        """Write the interval up to monotonic ``at`` and open the next one there."""
        if at > self._start:
            self._frame(at)
            data = {
                "from": self._start + self._offset,
                "to": at + self._offset,
                "cursor_from": self._start_cursor,
                "cursor_to": self.cursor,
                "steps": self._steps,
                "step_ns": self._step_ns,
                "wait_ns": self._wait_ns,
                "other_ns": at - self._start - self._step_ns - self._wait_ns,
            }
            if fragment:
                data["fragment"] = True
            self._journal.emit(Kind.INTERVAL, data, time_ns=at + self._offset, seq=self._seq)
            self._open(at)

    def _open(self, at: int) -> None:
        self._seq = self._journal.reserve()
        self._start = at
        self._start_cursor = self.cursor
        self._steps = self._step_ns = self._wait_ns = 0
        self._hwm = self.hwm
        self._close_at = at + INTERVAL_NS
        self._edge_at = min(self._edge_at, self._close_at)
        self._frame(at)

    def _frame(self, to: int, *, closed: bool = False) -> None:
        """Write the whole record to the cursor file: the interval as it is at ``to``."""
        if self._cursor_file is not None:
            self._cursor_file.write(
                *self._identity,
                self._seq,
                self.cursor,
                self.hwm,
                self._start + self._offset,
                to + self._offset,
                self._start_cursor,
                self._steps,
                self._step_ns,
                self._wait_ns,
                to - self._start - self._step_ns - self._wait_ns,
                1 if closed else 0 if self._looping else 2,
            )


def whole(value: object) -> int:
    """Return a whole number of any numeric type, 0-dimensional arrays and tensors included.

    Raises ``TypeError``, ``ValueError`` or ``OverflowError`` where it is none.
    """
    if hasattr(value, "__index__"):
        with contextlib.suppress(TypeError):  # tensors have it, and refuse unless of integers
            return int(operator.index(value))
    number = float(value)  # type: ignore[arg-type]
    if not number.is_integer():
        raise ValueError(f"{value!r} is not whole")
    return int(number)
