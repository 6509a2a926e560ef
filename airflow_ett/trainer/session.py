"""The Session: five lines in a training loop, and every second of the job is accounted for."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from airflow_ett.errors import ConfigurationError, EttError
from airflow_ett.events import AttemptId, Kind
from airflow_ett.trainer import claim, stacks
from airflow_ett.trainer.caches.warm import Warm
from airflow_ett.trainer.compiling import CompileWatcher
from airflow_ett.trainer.conclusion import conclude
from airflow_ett.trainer.failure import describe, is_failure, write_error_file
from airflow_ett.trainer.graphs.autotune import Autotune
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.opening import open_cursor, open_log, tell_start
from airflow_ett.trainer.outside import NoCheckpointer
from airflow_ett.trainer.pacing import interval
from airflow_ett.trainer.phases import Phases, Span
from airflow_ett.trainer.place import read_place
from airflow_ett.trainer.start.batchspec import BatchSpec
from airflow_ett.trainer.start.fastbatch import FastBatch
from airflow_ett.trainer.start.parallel import Parts, start
from airflow_ett.trainer.stepclock import StepClock
from airflow_ett.trainer.termination import PREEMPTED_EXIT, Termination

if TYPE_CHECKING:
    from airflow_ett.trainer.caches.compilecache import CompileCache
    from airflow_ett.trainer.checkpointer import Checkpointer
    from airflow_ett.trainer.publishing import Options
    from airflow_ett.trainer.shipping import Shipper

_Batch = TypeVar("_Batch")

_NEVER = 1 << 62
_END = object()
_log = logging.getLogger("airflow_ett.trainer")


class Session:
    """Measures a training, checkpoints and resumes it::

        with Session() as ett:
            saver = ett.checkpointer(model=model, optimizer=optimizer)
            start = saver.restore()
            for batch in ett.track(loader, cursor=start):
                ...
                ett.step(samples)

    Outside a launched job (without ``ETT_JOB``) it does nothing: nothing is written, nothing saved,
    ``restore`` returns 0. It raises nothing of its own into the loop: a log that cannot be written
    is warned about once. Only the first process of a node writes a log, the others tell their
    agent. One Session at a time has the word: one within another, or in a child process of it, does
    nothing but warn. After SIGTERM the next step saves, ``track`` ends, and the block ends with
    ``SystemExit(143)``.
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
        self._shipper: Shipper | None = None
        self._journal = Journal(self._place)
        self._clock = self._make_clock()
        self.step = self._clock.step  # straight to it: every nanosecond here is paid per step
        self._phases = Phases(self._journal, self._clock, self._offset)
        self._watcher = CompileWatcher(
            self._journal, self._phases, self._offset, hurry=self._clock.hurry
        )
        self.levers = Levers(self._journal)
        """Which levers are on, and where they tell what became of them."""
        self._warm = Warm(self._place, self.levers)
        self._compile_cache: CompileCache | None = None
        self._autotune = Autotune(self._place, self._warm, self.levers)
        self._fast_batch = FastBatch(self._warm, self._watcher, self.levers)

    @property
    def attempt(self) -> AttemptId | None:
        """The attempt's identity, None outside a launched job."""
        return self._place.attempt if self._place else None

    @property
    def preempted(self) -> bool:
        """Whether the training is to end early because of SIGTERM; ``track`` heeds it by itself."""
        if self._saver is not None and not self._saver.solo:
            return self._clock.stop or self._termination.bereaved() is not None
        return self._termination.received_ns is not None

    def __enter__(self) -> Session:
        if self._place is None or not claim.take(self._place):
            self._stand_down()
            return self
        log = open_log(self._place)
        self._journal.open(log)
        if self._place.context.log and log is not None:
            from airflow_ett.trainer import shipping  # elsewhere not needed

            self._shipper = shipping.begin(self._place, log)
        self._clock.keep(*open_cursor(self._place))
        self._termination.install()
        stacks.offer()
        claim.in_children(self._be_child)
        tell_start(self._journal, self._place, self._clock.hwm)
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
        if outcome == "preempted" and (error is None or not is_failure(error)):
            raise SystemExit(PREEMPTED_EXIT)  # code 0 would be taken for a complete training

    def phase(self, name: str) -> Span:
        """Return a context manager that books its block to phase ``name``.

        On another thread than the Session's own it is a lane of that thread's name.
        """
        self._watcher.watch()
        return self._phases.begin(name)

    def compile_cache(
        self, *code: Any, uri: str | None = None, max_bytes: int = 4 << 30, mega: bool | None = None
    ) -> None:
        """Have what was compiled before used again, and keep what will be compiled.

        Called before the first compilation. ``code``: models, functions or modules, whose source
        decides what may be used again; none: the main script. It is kept below ``[ett] cache_root``
        or ``uri``, up to ``max_bytes``; ``mega``: with torch's MegaCache (None: on a GPU).
        """
        if self._place is None:
            return
        if self._compile_cache is None:
            from airflow_ett.trainer.caches.compilecache import CompileCache

            self._compile_cache = CompileCache(self._place, self._phases, self.levers)
            self._watcher.compiled = self._compile_cache.keep
        self._compile_cache.open(code, uri=uri, max_bytes=max_bytes, mega=mega)

    def autotune(self) -> None:
        """Have kernels that an earlier run tuned (``max_autotune``) not be tuned again.

        Called before the first compilation. Nothing is raised: see the ``lever`` events.
        """
        self._autotune.open()

    def warm(self, name: str, make: Callable[[], Any], *, key: Any = None) -> Any:
        """Return what ``make()`` returned in an earlier attempt or job, else call it and keep it.

        For what is dear to find out: a sharding plan, a dataset's index. It is kept as JSON, below
        ``[ett] cache_root``, for as long as ``key`` (JSON, too: a version, a digest of the inputs)
        stays the same. What cannot be kept is made anew each time, and told of.
        """
        return self._warm.get(name, make, key)

    def parallel_init(self, **parts: Callable[..., Any]) -> Parts:
        """Make parts of the training at the same time, in threads; return them by name::

            made = ett.parallel_init(
                data=load, model=build, optimizer=lambda model: AdamW(model.parameters())
            )
            made.optimizer.step()

        A part waits for those that its parameters name. Each is a sub-stage of the start-up, in a
        lane of its own. Parts that draw from torch's global random numbers must depend on each
        other: between threads their order is chance.

        Raises :class:`InitError` that names each part that failed, :class:`ConfigurationError` for
        a parameter that names none, and for parts that wait for each other.
        """
        return start(parts, self._phases, self.levers)

    def fast_batch(
        self, run: Callable[[Any], Any], batch: BatchSpec | Callable[[], Any] | None = None
    ) -> None:
        """Have ``run(batch)``, which returns the loss, compiled while the first batch is fetched.

        Called before ``track``, by all ranks, which runs it, forward and backward, on a synthetic
        batch once the loader's worker processes are at work. Weights, buffers, gradients and random
        numbers are as before: ``run`` must step no optimizer. ``batch`` declares or makes one;
        without it, it is as an earlier attempt's first. Nothing is raised: see ``lever`` events.
        """
        if self._place is not None:
            self._fast_batch.register(run, batch, self._place.context.key)

    def parcels(self, loader: Any, batches: int) -> Any:
        """Return a ``DataLoader`` of the same batches, handed over ``batches`` at a time.

        Each worker has twice as many under way. Where it cannot be, ``loader`` itself is returned.
        """
        from airflow_ett.trainer.parcels import in_parcels  # it imports torch

        return in_parcels(loader, batches, self.levers)

    def checkpointer(
        self,
        *,
        every_s: float | Literal["auto"] | None = "auto",
        background: bool = True,
        on_failed_save: Literal["warn", "raise"] = "warn",
        golden: Any = None,
        **objects: Any,
    ) -> Checkpointer | NoCheckpointer:
        """Return what saves and restores ``objects``, each with ``state_dict``/``load_state_dict``.

        Models and their optimizers fit any number of ranks; of everything else, such as a loader
        that knows its position, each rank has its own state again, and its own random numbers.

        A save is due every ``every_s`` seconds (``auto``: as often as wastes least time; None:
        never), and at the end of the training. It is written beside the training unless
        ``background`` is False. ``on_failed_save`` says whether the training goes on after a failed
        save or raises :class:`CheckpointError` at the next step; the last one must succeed.

        ``golden`` is a batch (tensors: one, a tuple, or by keyword) that ``model`` scores at every
        save, which waits for it: publishing compares a snapshot's scores with these.

        All ranks call it, at the same point. Raises :class:`ConfigurationError` for an object that
        cannot be saved.
        """
        self._watcher.watch()
        if self._place is None:
            return NoCheckpointer()
        from airflow_ett.trainer.checkpointer import Checkpointer  # not before it is needed

        saver = Checkpointer(
            self._place,
            self._journal,
            self._phases,
            self._clock,
            objects,
            interval(every_s),
            background=background and self.levers.on("background_saves"),
            on_failed_save=on_failed_save,
            golden=golden,
        )
        if not saver.solo:
            self._clock.each_step = lambda: self._at_step(saver)
        self._saver = saver
        return saver

    def publish(
        self, *, model: str, registry: str, name: str, **more: Unpack[Options]
    ) -> Mapping[str, Any] | None:
        """Publish the present state from within the training, whose accelerators wait for it.

        A task of its own after the training holds none. The parameters are those of
        :class:`airflow_ett.publish.Request`. All ranks call it, at the same point. Returns what
        ``python -m airflow_ett.publish`` tells (``version``, ``uri``, ``digest``, …), None outside
        a launched job and where SIGTERM came first.

        Raises :class:`PublishError` on all ranks when it fails, :class:`CheckpointError` when the
        state cannot be saved, :class:`ConfigurationError` without a checkpointer and for a
        parameter of another kind.
        """
        if self._place is None:
            return None
        if self._saver is None:
            raise ConfigurationError("publish", "needs the checkpointer, with model=")
        from airflow_ett.trainer.publishing import publish  # elsewhere not needed

        options = {"model": model, "registry": registry, "name": name, **more}
        return publish(self._saver, self._phases, self._termination, options)

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
        requested = self._clock.request(cursor)
        if not first:
            return batches
        with self._phases.begin("first_batch", at=requested):
            iterator = iter(batches)
            self._fast_batch.run(batches)
            if self._saver is not None:
                self._saver.at_first_batch()
            head: Any = next(iterator, _END)
        self._at_edge()  # a first step may compile for longer than the grace after a SIGTERM
        if head is _END or self._clock.stop:
            return ()
        self._fast_batch.arrived(head)
        return itertools.chain((head,), iterator)

    def _signalled(self) -> bool:
        received = self._termination.received_ns
        if received is not None and not self._signal_told:
            self._signal_told = True
            self._journal.emit(Kind.SIGNAL, {"signal": "SIGTERM"}, time_ns=received)
        return received is not None

    def _at_step(self, saver: Checkpointer) -> None:
        """Have several ranks agree on what follows, unless one of them is known to be gone."""
        stop = self._signalled()
        if stop and self._termination.bereaved():
            self._clock.each_step = None
            self._clock.stop = True
        else:
            saver.at_step(stop=stop)

    def _at_edge(self) -> int:
        """Do what is to be done now and then between two steps; return when to come again."""
        self._watcher.watch()
        self._autotune.keep()
        self._fast_batch.at_edge()
        stop = self._signalled()
        if self._saver is not None:
            return self._saver.at_edge(stop=stop)
        self._clock.stop = stop
        return _NEVER

    def _conclude(self, error: BaseException | None) -> str:
        """Save what is to be saved at the end; return the outcome."""
        self._signalled()
        return conclude(
            error,
            self._saver,
            self._termination,
            preempted=self.preempted,
            grace_s=self._place.context.grace_s if self._place else None,
            tell=self._tell_failure,
        )

    def _tell_failure(self, error: BaseException) -> None:
        data = describe(error)
        self._journal.emit(Kind.FAILURE, data)
        write_error_file(data)

    def _end(self, outcome: str) -> None:
        self._watcher.unwatch()
        self._fast_batch.close(hurried=outcome != "success")
        self._autotune.close(hurried=outcome != "success")
        if self._compile_cache is not None:
            self._compile_cache.close(hurried=outcome != "success")
        if self._saver is not None:
            self._saver.close()
        self._journal.emit(Kind.SESSION_ENDED, {"outcome": outcome, "cursor": self._clock.cursor})
        self._journal.close()
        if self._shipper is not None:
            self._shipper.finish(self._termination, hurried=outcome == "error")
        self._termination.restore()
        claim.release()

    def _be_child(self) -> None:
        """A forked child (a loader's worker) must not write here, and must die of SIGTERM."""
        self._journal.abandon()
        self._termination.restore()
        self._stand_down()

    def _stand_down(self) -> None:
        """Do as outside a launched job from here on."""
        self._place = self._saver = self._clock.each_step = None
        self._watcher.compiled = lambda: None
        self._warm.leave()
        self._fast_batch.close(hurried=True)
        self._clock.keep(None, self._clock.hwm)

    def _make_clock(self) -> StepClock:
        place = self._place
        attempt = place.attempt if place else AttemptId(0)
        identity = (*attempt, place.rank if place else 0, os.getpid())
        return StepClock(self._journal, identity, offset=self._offset, on_edge=self._at_edge)
