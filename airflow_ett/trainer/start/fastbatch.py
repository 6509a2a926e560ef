"""A synthetic batch, on which the model compiles while the first real one is fetched.

Fetching goes on meanwhile in the loader's worker processes only, so the most that it saves is the
shorter one of the two. What it ran on must be as the first real batch, to the strides: else that
one compiles again, which is told with torch's reason for it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_ett.errors import EttError
from airflow_ett.events import JobKey
from airflow_ett.trainer.caches.warm import Warm
from airflow_ett.trainer.compiling import CompileWatcher
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.phases import MAIN
from airflow_ett.trainer.start.batchspec import BatchSpec, NoBatch

if TYPE_CHECKING:
    from airflow_ett.trainer.ranks import Ranks

_LEVER = "fast_batch"


class _Unknown(NoBatch):
    """Nobody has said, and no earlier attempt has seen, what a batch is like."""


class FastBatch:
    """Does nothing before :meth:`register`."""

    def __init__(self, warm: Warm, watcher: CompileWatcher, levers: Levers) -> None:
        self._warm = warm
        self._watcher = watcher
        self._levers = levers
        self._run: Callable[[Any], Any] | None = None
        self._batch: BatchSpec | Callable[[], Any] | None = None
        self._name = ""
        self._expected: BatchSpec | None = None
        self._took_ns: int | None = None
        self._note = ""
        self._first_step = False
        self._compiled: list[Mapping[str, Any]] = []

    def register(
        self,
        run: Callable[[Any], Any],
        batch: BatchSpec | Callable[[], Any] | None,
        key: JobKey,
    ) -> None:
        """Remember what to run, and on what; tasks of a DAG have batches of their own."""
        if self._levers.on(_LEVER):
            self._run, self._batch = run, batch
            self._name = f"batch of {key.task_id}, {key.map_index}"

    def run(self, loader: Any) -> None:
        """Run it now: ``loader`` has begun to fetch.

        All ranks call it: the backward pass may have them exchange gradients.
        """
        if self._run is None:
            return
        self._watcher.watch()
        began = time.monotonic_ns()
        try:
            self._run_together(self._run, loader)
        except _Unknown as error:
            self._levers.tell(_LEVER, "missed", str(error))
        except Exception as error:
            self._levers.tell(_LEVER, "unable", _words(error))
        else:
            self._took_ns = time.monotonic_ns() - began
            self._note = _idleness(loader)
        self._watcher.watch()

    def arrived(self, batch: Any) -> None:
        """The first real batch is there: what it is like is kept for later attempts."""
        if self._run is None:
            return
        self._run = None  # and with it whatever it holds
        try:
            self._compare(BatchSpec.of(batch))
        except Exception as error:
            if self._batch is None:
                problem = f"{_words(error)}: have fast_batch's argument batch make one"
                self._levers.tell(_LEVER, "unable", problem)
        if self._took_ns is not None:
            self._first_step = True
            self._watcher.follow(self._compiled.append)

    def at_edge(self) -> None:
        """The first real step may be over: say what the fast batch was good for."""
        if not self._first_step:
            return
        self._first_step = False
        self._watcher.follow(None)
        compiled = [told for told in self._compiled if told["lane"] == MAIN]
        again = [told["reason"] for told in compiled if told["reason"]]
        if again:
            reason = f"compiled again on the first real batch: {again[0]}"
        elif compiled:
            ids = ", ".join(told["id"] for told in compiled)
            reason = f"the first real step compiled what it does not run: {ids}"
        else:
            reason = ""
        reason = "; ".join(filter(None, (reason, self._note)))
        self._levers.tell(
            _LEVER, "missed" if again else "used", reason or None, duration_ns=self._took_ns
        )

    def close(self, *, hurried: bool) -> None:
        """Run nothing any more; ``hurried``: without a word where nothing came of it."""
        if self._run is not None and not hurried:
            reason = "no first batch came of track after it: call it before the loop"
            self._levers.tell(_LEVER, "unable", reason)
        self._run = None

    def _compare(self, came: BatchSpec) -> None:
        if self._batch is None and came != self._expected:
            self._warm.put(self._name, came.as_dict(), None)
        if self._expected is not None:
            self._note = self._expected.differences(came) or self._note

    def _run_together(self, run: Callable[[Any], Any], loader: Any) -> None:
        from airflow_ett.trainer.ranks import Ranks  # not before they are needed
        from airflow_ett.trainer.start.untouched import untouched

        ranks = Ranks(1)
        try:
            make = _together(ranks, lambda: self._maker(loader))
            with untouched():
                loss = _together(ranks, lambda: _loss(run(self._made(make))))
                loss.backward()
        finally:
            ranks.close()

    def _maker(self, loader: Any) -> Callable[[], Any]:
        """Return what makes the batch."""
        if getattr(loader, "num_workers", None) == 0:
            raise NoBatch("the loader has no worker processes: nothing is fetched meanwhile")
        if callable(self._batch):
            return self._batch
        if self._batch is not None:
            return self._batch.make
        told = self._warm.find(self._name, None)
        if told is None:
            raise _Unknown("what a batch is like is not known from an earlier attempt")
        return BatchSpec.of_dict(told).make

    def _made(self, make: Callable[[], Any]) -> Any:
        batch = make()
        with suppress(Exception):  # one that the user makes need not be one that can be described
            self._expected = BatchSpec.of(batch)
        return batch


def _together(ranks: Ranks, act: Callable[[], Any]) -> Any:
    """Return what ``act`` returns, and raise where it raises on any rank.

    A rank alone in the backward pass would exchange its gradients with a real step of the others.
    """
    try:
        result = act()
    except Exception as error:
        ranks.concur(_words(error))
        raise
    if elsewhere := ranks.concur(None):
        raise NoBatch(elsewhere)
    return result


def _loss(result: Any) -> Any:
    if not getattr(result, "requires_grad", False) or result.numel() != 1:
        raise NoBatch("it must return the loss: one number, with a gradient")
    return result


def _idleness(loader: Any) -> str:
    """Return why nothing was fetched meanwhile, as far as that is known."""
    begins = getattr(type(loader), "__iter__", None)
    if inspect.isgenerator(loader) or inspect.isgeneratorfunction(begins):
        return "the loader is a generator, which begins to fetch only when it is asked for a batch"
    return ""


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, EttError) else f"{type(error).__name__}: {error}"
