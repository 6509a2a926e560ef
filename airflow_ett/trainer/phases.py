"""Named phases: on the main lane, where they pause the step clock, and on other threads' lanes."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from types import TracebackType

from airflow_ett.events import Kind
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.stepclock import StepClock

MAIN = "main"
_spans = itertools.count()  # a process is one writer, however many Sessions it has in turn


class Phases:
    """Begins and ends phases. ``offset`` turns monotonic into UTC nanoseconds.

    The thread that made it is the main lane, with those of autograd while it waits for them; the
    others are lanes by their threads' names.
    """

    def __init__(self, journal: Journal, clock: StepClock, offset: int) -> None:
        self._journal = journal
        self._clock = clock
        self._offset = offset
        self._main = threading.get_ident()

    @property
    def lane(self) -> str:
        """The calling thread's lane."""
        if threading.get_ident() == self._main:
            return MAIN
        thread = threading.current_thread()
        if isinstance(thread, threading._DummyThread) and self._in_backward():
            return MAIN
        return thread.name

    def _in_backward(self) -> bool:
        """Whether the main thread waits for autograd, whose own threads then do its work.

        So it is with tensors on a GPU: their backward pass is compiled there, for instance.
        """
        frame = sys._current_frames().get(self._main)
        return frame is not None and frame.f_code.co_name == "_engine_run_backward"

    def begin(self, phase: str, *, synchronize: bool = True, at: int | None = None) -> Span:
        """Begin a phase now, or as of monotonic ``at``, and return it."""
        lane = self.lane
        if synchronize and lane == MAIN:
            synchronize_cuda(self._journal)
        now = time.monotonic_ns() if at is None else at
        paused = lane == MAIN and self._clock.pause(now)
        if lane != MAIN:
            self._clock.hurry()
        span = Span(self, next(_spans), lane, now, paused)
        data = {"span": span.id, "phase": phase, "lane": lane}
        self._journal.emit(Kind.PHASE_BEGIN, data, time_ns=now + self._offset)
        return span

    def end(self, span: Span, *, synchronize: bool = True, at: int | None = None) -> int:
        """End a phase now, or as of monotonic ``at``, and return its length in nanoseconds."""
        if synchronize and span.lane == MAIN:
            synchronize_cuda(self._journal)
        now = time.monotonic_ns() if at is None else at
        if span.lane == MAIN and not span.paused:
            self._clock.edge(now)
        self._journal.emit(Kind.PHASE_END, {"span": span.id}, time_ns=now + self._offset)
        if span.paused:
            self._clock.resume(now)
        elif span.lane != MAIN:
            self._clock.hurry()
        return now - span.begin


class Span:
    """A phase that has begun; as a context manager it ends with the block."""

    __slots__ = ("_phases", "begin", "id", "lane", "paused")

    def __init__(self, phases: Phases, id: int, lane: str, begin: int, paused: bool) -> None:
        self._phases = phases
        self.id = id
        self.lane = lane
        self.begin = begin
        self.paused = paused

    def end(self, *, synchronize: bool = True) -> int:
        """End the phase now and return its length in nanoseconds."""
        return self._phases.end(self, synchronize=synchronize)

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def synchronize_cuda(journal: Journal) -> None:
    """Wait for the GPU, so that its work is booked where it was ordered; only where in use."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized() or cuda.is_current_stream_capturing():
            return
        cuda.synchronize()
    except Exception as error:  # a broken device shows itself in the user's own next call
        journal.warn("Phases are not synchronised with the GPU", error)
