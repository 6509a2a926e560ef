"""The Session: five lines in a training loop, and every second of the job is accounted for."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_ett.errors import EttError
from airflow_ett.events import AttemptId, CursorFile, Kind, LogWriter, read_cursor, trainer_writer
from airflow_ett.trainer import claim
from airflow_ett.trainer.compiling import CompileWatcher
from airflow_ett.trainer.failure import describe, is_failure, write_error_file
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.phases import Phases, Span
from airflow_ett.trainer.place import Place, process_start_ns, read_place
from airflow_ett.trainer.stepclock import StepClock
from airflow_ett.trainer.termination import Termination

if TYPE_CHECKING:
    from airflow_ett.trainer.checkpointer import Checkpointer

_Batch = TypeVar("_Batch")

PREEMPTED_EXIT = 143
_NEVER = 1 << 62
_END = object()
_log = logging.getLogger("airflow_ett.trainer")


class Session:
    """Measures a training, checkpoints and resumes it::

        with Session() as ett:
            saver = ett.checkpointer(model=model, optimizer=optimizer, every_s=900)
            start = saver.restore()
            for batch in ett.track(loader, cursor=start):
                ...
                ett.step(samples)

    Outside a launched job (without ``ETT_JOB``) it does nothing: nothing is written, nothing saved,
    ``restore`` returns 0. It raises nothing of its own into the loop: a log that cannot be written
    is warned about once. Only the first process of a node writes a log. One Session at a time has
    the word: one within another, or in a child process of it, does nothing but warn. After SIGTERM
    the next step saves, ``track`` ends, and the block ends with ``SystemExit(143)``.
    """

    step: Callable[[int], None]
    """``step(samples)`` ends a step: so many samples of the present loader are trained. Runs a save
    that is due."""

    def __init__(self) -> None:
        try:
            self._place = read_place()
        except EttError as error:
            _log.warning("This training is neither measured nor checkpointed: %s", error)
            self._place = None
        self._offset = time.time_ns() - time.monotonic_ns()
        self._termination = Termination(lambda: self._clock.hurry())
        self._signal_told = False
        self._saver: Checkpointer | None = None
        self._journal = Journal(self._place)
        self._clock = self._make_clock()
        self.step = self._clock.step  # straight to it: every nanosecond here is paid per step
        self._phases = Phases(self._journal, self._clock, self._offset)
        self._watcher = CompileWatcher(self._journal, self._phases, self._offset)

    @property
    def attempt(self) -> AttemptId | None:
        """The attempt's identity, None outside a launched job."""
        return self._place.attempt if self._place else None

    @property
    def preempted(self) -> bool:
        """Whether the training is to end early because of SIGTERM; ``track`` heeds it by itself."""
        if self._saver is not None and not self._saver.solo:
            return self._clock.stop
        return self._termination.received_ns is not None

    def __enter__(self) -> Session:
        if self._place is None or not self._claim(self._place):
            return self
        self._journal.open(_open_log(self._place))
        self._clock.keep(*_open_cursor(self._place))
        self._termination.install()
        _disable_in_children(self)
        started = {
            "role": "trainer",
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "node": self._place.node,
            "world_size": self._place.world_size,
        }
        self._journal.emit(Kind.PROCESS_STARTED, started, time_ns=process_start_ns())
        version = getattr(sys.modules.get("torch"), "__version__", None)
        data = {"cursor_hwm": self._clock.hwm, "torch": version and str(version)}
        self._journal.emit(Kind.SESSION_STARTED, data)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._place is None:
            return
        self._clock.leave_loop()
        self._phases.begin("shutdown")
        outcome = "error"
        try:
            outcome = self._conclude(error)
        except BaseException as late:
            self._tell_failure(late)
            raise
        finally:
            self._end(outcome)
        if outcome == "preempted" and error is None:
            raise SystemExit(PREEMPTED_EXIT)

    def phase(self, name: str) -> Span:
        """Return a context manager that books its block to phase ``name``.

        On another thread than the Session's own it is a lane of that thread's name.
        """
        self._watcher.watch()
        return self._phases.begin(name)

    def checkpointer(
        self, *, every_s: float | None = None, **objects: Any
    ) -> Checkpointer | _NoCheckpointer:
        """Return what saves and restores ``objects``, each with ``state_dict``/``load_state_dict``.

        A save is due every ``every_s`` seconds, and at the end of the training. All ranks call it,
        at the same point. Raises :class:`ConfigurationError` for an object that cannot be saved.
        """
        self._watcher.watch()
        if self._place is None:
            return _NoCheckpointer()
        from airflow_ett.trainer.checkpointer import Checkpointer  # not before it is needed

        saver = Checkpointer(
            self._place, self._journal, self._phases, self._clock, objects, every_s
        )
        if not saver.solo:
            self._clock.each_step = lambda: saver.at_step(stop=self._signalled())
        self._saver = saver
        return saver

    def track(self, batches: Iterable[_Batch], cursor: int | None = None) -> Iterator[_Batch]:
        """Yield the batches of a loader whose first one lies at ``cursor`` (global samples).

        Without ``cursor`` it goes on where the training stands. Ends early on preemption.
        """
        return self._clock.track(lambda: self._request(batches, cursor))

    def _request(self, batches: Iterable[_Batch], cursor: int | None) -> Iterable[_Batch]:
        """Ask a loader for its first batch; the first one of all is the pipeline's warm-up."""
        self._at_edge()
        if self._clock.stop:
            return ()
        first = self._clock.idle
        self._clock.request(cursor)
        if not first:
            return batches
        with self.phase("first_batch"):
            iterator = iter(batches)
            head: Any = next(iterator, _END)
        return () if head is _END else itertools.chain((head,), iterator)

    def _signalled(self) -> bool:
        received = self._termination.received_ns
        if received is not None and not self._signal_told:
            self._signal_told = True
            self._journal.emit(Kind.SIGNAL, {"signal": "SIGTERM"}, time_ns=received)
        return received is not None

    def _at_edge(self) -> int:
        """Do what is to be done now and then between two steps; return when to come again."""
        self._watcher.watch()
        stop = self._signalled()
        if self._saver is not None:
            return self._saver.at_edge(stop=stop)
        self._clock.stop = stop
        return _NEVER

    def _conclude(self, error: BaseException | None) -> str:
        """Save what is to be saved at the end; return the outcome."""
        saver = self._saver
        self._signalled()
        if error is not None and is_failure(error):
            self._tell_failure(error)
            if saver is not None:
                saver.join(timeout=self._place.context.grace_s if self._place else None)
            return "error"
        preempted = self.preempted
        if saver is not None and preempted:
            saver.leave_last()
        elif saver is not None:
            saver.leave_anchor()
        return "preempted" if preempted else "success"

    def _tell_failure(self, error: BaseException) -> None:
        data = describe(error)
        self._journal.emit(Kind.FAILURE, data)
        write_error_file(data)

    def _end(self, outcome: str) -> None:
        self._watcher.unwatch()
        data = {"outcome": outcome, "cursor": self._clock.cursor}
        if self._saver is not None:
            self._saver.close()
        self._journal.emit(Kind.SESSION_ENDED, data)
        self._journal.close()
        self._termination.restore()
        claim.release()

    def _claim(self, place: Place) -> bool:
        if claim.take(place):
            return True
        _log.warning(
            "A Session within another one, or in a child process of one, does nothing: job %s is "
            "measured and checkpointed by the outer one.",
            place.context.key,
        )
        self._stand_down()
        return False

    def _stand_down(self) -> None:
        """Do as outside a launched job from here on."""
        self._place = self._saver = self._clock.each_step = None
        self._clock.keep(None, self._clock.hwm)

    def _make_clock(self) -> StepClock:
        place = self._place
        attempt = place.attempt if place else AttemptId(0)
        identity = (*attempt, place.rank if place else 0, os.getpid())
        return StepClock(self._journal, identity, offset=self._offset, on_edge=self._at_edge)


class _NoCheckpointer:
    """The checkpointer outside a launched job."""

    def restore(self) -> int:
        """Return 0: there is nothing to resume from."""
        return 0


def _open_log(place: Place) -> LogWriter | None:
    """Return the log to write, on the first process of a node."""
    if place.local_rank != 0:
        return None
    writer = trainer_writer(place.attempt, place.rank, os.getpid())
    path = place.run_dir.nodes / f"{writer}.jsonl"
    try:
        return LogWriter(path, job=place.context.key.id, writer=writer)
    except OSError as error:
        _log.warning("This training is not measured: %s cannot be written: %s", path, error)
        return None


def _open_cursor(place: Place) -> tuple[CursorFile | None, int]:
    """Return the cursor file to write, on the first rank, and the high-water mark known."""
    path, hwm = place.run_dir.cursor, place.context.hwm
    try:
        record = read_cursor(path)
        hwm = max(hwm, record.hwm if record else 0)
        return (CursorFile(path) if place.rank == 0 else None), hwm
    except OSError as error:
        _log.warning("The cursor is not kept: %s cannot be written: %s", path, error)
        return None, hwm


def _disable_in_children(session: Session) -> None:
    """A forked child (a loader's worker) must not write here, and must die of SIGTERM as usual."""
    reference = weakref.ref(session)

    def disable() -> None:
        inherited = reference()
        if inherited is not None:
            inherited._journal.abandon()
            inherited._termination.restore()
            inherited._stand_down()

    os.register_at_fork(after_in_child=disable)
