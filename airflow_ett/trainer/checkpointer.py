"""Checkpoints of a training: when to save, in the background, committed by the first rank alone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from airflow_ett import checkpoints
from airflow_ett.errors import CheckpointError
from airflow_ett.events import Kind
from airflow_ett.trainer.committing import Committer
from airflow_ett.trainer.fence import Fence
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.place import Place
from airflow_ett.trainer.ranks import Ranks
from airflow_ett.trainer.restoring import choose
from airflow_ett.trainer.shards import Shards
from airflow_ett.trainer.stepclock import StepClock

_NEVER = 1 << 62


class Checkpointer:
    """Saves and restores the objects given to :meth:`Session.checkpointer`.

    A save copies the state while the training waits, and is written and committed beside it. A
    failed one is warned about and the training goes on; the last one must succeed. Only the trainer
    that has the directory's lease commits: one that a later attempt has replaced warns and stops.
    """

    def __init__(
        self,
        place: Place,
        journal: Journal,
        phases: Phases,
        clock: StepClock,
        objects: Mapping[str, Any],
        every_s: float | None,
    ) -> None:
        self._place = place
        self._journal = journal
        self._phases = phases
        self._clock = clock
        self._root = checkpoints.local_path(place.context.checkpoints)
        self._ranks = Ranks(place.world_size)
        self._shards = Shards(self._ranks, objects)
        self._every_ns = None if every_s is None else int(every_s * 1e9)
        self._due_at: int | None = None
        self._saved = 0
        self._pending: threading.Thread | Future[Any] | None = None
        self._entered = False
        self._committer: Committer | None = None
        if self._ranks.first:
            fence = Fence(place, self._root, journal, clock.hurry)
            self._committer = Committer(place, self._root, journal, phases, fence)

    @property
    def superseded(self) -> bool:
        """Whether a later trainer of the job has replaced this one, as far as this rank knows."""
        return self._committer is not None and self._committer.fence.lost is not None

    @property
    def solo(self) -> bool:
        """Whether no other rank needs to agree to a save."""
        return not self._ranks.several

    def restore(self) -> int:
        """Load the checkpoint to resume from and return its cursor; 0 where the job is fresh.

        All ranks call it, before the first batch is requested. Raises :class:`CheckpointError`
        when the checkpoint that the operator named is not there, is damaged, or does not fit, and
        when the directory is another job's or a later attempt's.
        """
        with self._phases.begin("checkpoint_restore"):
            self._enter()
            found = self._ranks.share(choose(self._place.context) if self._ranks.first else None)
            if isinstance(found, CheckpointError):
                raise found
            if found is None:
                return 0
            source, weights_only = found
            self._shards.load(source.path, weights_only=weights_only)
        if weights_only:
            return 0
        cursor: int = source.cursor
        self._clock.restart(cursor, hwm=cursor)
        if self._committer is not None and source.path.parent == self._root:
            self._committer.last = source
        self._saved = cursor
        data = {"checkpoint": source.uri, "cursor": cursor, "hwm": self._clock.hwm}
        self._journal.emit(Kind.RESUMED, data)
        return cursor

    def at_edge(self, *, stop: bool) -> int:
        """Save between two steps if it is due, or because the training is to stop (one process).

        Returns the monotonic time of the next due save.
        """
        due = self._due()
        if not self.solo:
            return _NEVER
        if stop or self.superseded:
            if self._clock.cursor > self._saved and not self.superseded:
                self.save(wait=True)
            self._clock.stop = True
        elif due:
            self.save()
        return self._due_at or _NEVER

    def at_step(self, *, stop: bool) -> None:
        """Count a step of several ranks, and at the agreed ones decide with them."""
        if not self._ranks.tick():
            return
        try:
            decision = self._ranks.agree(due=self._due(), stop=stop or self.superseded)
        except Exception as error:  # a peer is gone: nothing can be saved together any more
            self._journal.warn("The ranks cannot agree on checkpoints any more", error)
            self._clock.each_step = None
            self._clock.stop = self._clock.stop or stop
            return
        if decision.stop and self._clock.cursor > self._saved:
            self.save(wait=True)
        elif decision.save:
            self.save()
        self._clock.stop = decision.stop

    def save(self, *, wait: bool = False, anchor: bool = False) -> None:
        """Save the present state under the present cursor; ``wait`` until it is committed."""
        cursor = self._clock.cursor
        path = self._root / checkpoints.folder_name(cursor, self._place.attempt)
        span = self._phases.begin("checkpoint_save")
        try:
            self.join()
            self._enter()
            upload = self._shards.save(path)
            self._saved = cursor
        except BaseException as error:
            span.end()
            if not _is_failure(error):
                raise
            self._journal.warn(f"Checkpoint {path} could not be saved", error)
            return
        finally:
            self._due_at = time.monotonic_ns() + self._every_ns if self._every_ns else None
        self._pending = upload
        if self._committer is not None:
            self._pending = self._committer.start(upload, path, cursor, anchor=anchor)
        if wait and not anchor:
            self.join()
        blocking = span.end()
        data = {"checkpoint": str(path), "cursor": cursor, "blocking_ns": blocking}
        self._journal.emit(Kind.CHECKPOINT_SAVED, data)
        if wait:
            self.join()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the upload in flight, at most ``timeout`` seconds."""
        pending, self._pending = self._pending, None
        if isinstance(pending, threading.Thread):
            pending.join(timeout)
        elif pending is not None:
            with contextlib.suppress(TimeoutError):
                pending.exception(timeout)  # the first rank tells what went wrong

    def leave_anchor(self) -> None:
        """At the end of a training: have its last state committed, as the checkpoint to publish.

        All ranks call it. Raises :class:`CheckpointError` when that fails.
        """
        cursor = self._clock.cursor
        self.join()
        if self._committed_cursor() != cursor:
            if self._lost() is None:
                self.save(wait=True, anchor=True)
            if self._committed_cursor() != cursor:
                raise self._lost() or CheckpointError(
                    f"the training is complete, but its last state (cursor {cursor}) could not be "
                    f"saved in {self._root}: see the warnings before; clear the task to go on from "
                    "the checkpoint before it"
                )
        elif self._committer is not None and self._committer.last is not None:
            self._committer.tell(self._committer.last, upload_ns=0, anchor=True)

    def leave_last(self) -> None:
        """At the end of a training that was stopped: have its last state committed, if possible."""
        self.join()
        if self._clock.cursor > self._saved and self.solo and not self.superseded:
            self.save(wait=True)

    def close(self) -> None:
        """Free what the saves needed."""
        self._shards.close()
        if self._committer is not None:
            self._committer.fence.close()

    def _enter(self) -> None:
        """Take the lease, once; all ranks call it. Raises :class:`CheckpointError` if refused."""
        if self._entered:
            return
        refused = self._ranks.share(self._committer.fence.enter() if self._committer else None)
        if refused is not None:
            raise refused
        self._entered = True

    def _due(self) -> bool:
        if self._every_ns is None:
            return False
        if self._due_at is None:
            self._due_at = time.monotonic_ns() + self._every_ns
        return time.monotonic_ns() >= self._due_at and self._clock.cursor != self._saved

    def _lost(self) -> CheckpointError | None:
        lost = self._committer.fence.lost if self._committer else None
        shared: CheckpointError | None = self._ranks.share(lost)
        return shared

    def _committed_cursor(self) -> int | None:
        last = self._committer.last if self._committer else None
        cursor: int | None = self._ranks.share(last.cursor if last else None)
        return cursor


def _is_failure(error: BaseException) -> bool:
    """Whether it says that something failed, torch's CheckpointException included."""
    return isinstance(error, Exception) or type(error).__name__ == "CheckpointException"
