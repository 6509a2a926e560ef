"""Checkpoints of a training: when to save, in the background, committed by the first rank alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from airflow_ett import checkpoints
from airflow_ett.checkpoints import FileDigest
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import CheckpointError, ConfigurationError
from airflow_ett.events import Kind
from airflow_ett.trainer.committing import Committer
from airflow_ett.trainer.fence import Fence
from airflow_ett.trainer.golden import Golden
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.pacing import NEVER, Pace
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.place import Place
from airflow_ett.trainer.ranks import Ranks
from airflow_ett.trainer.restoring import choose
from airflow_ett.trainer.saveerrors import is_change, is_failure, reason
from airflow_ett.trainer.shards import Shards
from airflow_ett.trainer.stepclock import StepClock
from airflow_ett.trainer.uploads import Untold, Upload

_LATE_NS = 60_000_000_000
_TRIES = 2
"""Of the last save: the first may have found the disk full, and made room."""


class Checkpointer:
    """Saves and restores the objects given to :meth:`Session.checkpointer`.

    A save copies the state, and is written and committed beside the training, one at a time: the
    next one is put off until the last is committed. What only an optimizer's step changes is copied
    beside the training, too, and the step waits for the rest of it; the training waits for all
    other copies. Nothing else may write to it before that step: a save that finds a change is lost,
    warned about whatever ``on_failed_save`` says, and made anew. What torch does not count as a
    change is not found: one through ``.data``, or by a fused or foreach kernel that is called
    outside of an optimizer's step. With ``background`` False the training waits for all of a save,
    which needs no memory for a copy.

    A failed save is warned about and the training goes on: to stop it would lose for certain what
    the next save may still keep. With ``on_failed_save="raise"`` the next step raises instead. The
    last save must succeed in any case. Only the trainer that has the directory's lease commits: one
    that a later attempt has replaced warns and stops.
    """

    def __init__(
        self,
        place: Place,
        journal: Journal,
        phases: Phases,
        clock: StepClock,
        objects: Mapping[str, Any],
        every_s: float | Literal["auto"] | None,
        *,
        background: bool = True,
        on_failed_save: Literal["warn", "raise"] = "warn",
        golden: Any = None,
    ) -> None:
        self._place = place
        self._journal = journal
        self._phases = phases
        self._clock = clock
        self._background = background
        if on_failed_save not in ("warn", "raise"):
            raise ConfigurationError("on_failed_save", f"{on_failed_save!r} is no policy")
        self._raises = on_failed_save == "raise"
        self._root = checkpoints.folder(place.context.checkpoints)
        self.ranks = Ranks(place.world_size)
        """How the training's ranks agree."""
        self._shards = Shards(self.ranks, objects, self._before_step)
        self._golden = None if golden is None else Golden(objects, golden, journal)
        self._pace = Pace(every_s, place.context.failures_per_hour)
        self._safe = 0
        self._upload: Upload | None = None
        self._untold: Untold | None = None
        self._problem: str | None = None
        self._entered = False
        self._committer: Committer | None = None
        if self.ranks.first:
            fence = Fence(place, self._root, journal, clock.hurry)
            self._committer = Committer(place, self._root, journal, fence)

    @property
    def superseded(self) -> bool:
        """Whether a later trainer of the job has replaced this one, as far as this rank knows."""
        return self._committer is not None and self._committer.fence.lost is not None

    @property
    def solo(self) -> bool:
        """Whether no other rank needs to agree to a save."""
        return not self.ranks.several

    def restore(self) -> int:
        """Load the checkpoint to resume from and return its cursor; 0 where the job is fresh.

        All ranks call it, before the first batch is requested. Raises :class:`CheckpointError`
        when the checkpoint that the operator named is not there, is damaged, or does not fit, and
        when the directory is another job's or a later attempt's.
        """
        with self._phases.begin("checkpoint_restore"):
            self._enter()
            found = self.ranks.share(choose(self._place.context) if self.ranks.first else None)
            if isinstance(found, CheckpointError):
                raise found
            if found is None:
                return 0
            source, weights_only = found
            self._shards.load(source, weights_only=weights_only)
        if weights_only:
            return 0
        cursor: int = source.cursor
        self._clock.restart(cursor, hwm=cursor)
        if self._committer is not None and source.path.parent == self._root:
            self._committer.last = source
        self._safe = cursor
        data = {"checkpoint": source.uri, "cursor": cursor, "hwm": self._clock.hwm}
        self._journal.emit(Kind.RESUMED, data)
        return cursor

    def at_first_batch(self) -> None:
        """Let the random numbers go on where they were saved.

        Making a loader's iterator draws some, which the straight training drew long before.
        """
        self._shards.own.put_back_random()

    def at_edge(self, *, stop: bool) -> int:
        """Save between two steps if it is due, or because the training is to stop (one process).

        Returns the monotonic time of the next due save. Raises :class:`CheckpointError` after a
        failed save, where that is wanted.
        """
        if not self.solo:
            return NEVER
        if self._raises and self._problem is not None:
            raise self._failure(self._problem)
        if stop or self.superseded:
            if self._clock.cursor > self._saved and not self.superseded:
                self.save(wait=True)
            self._clock.stop = True
        elif self._due():
            self.save()
        return NEVER if self._busy else self._pace.due_ns

    def at_step(self, *, stop: bool) -> None:
        """Count a step of several ranks, and at the agreed ones decide with them.

        Raises :class:`CheckpointError` on all of them after a failed save, where that is wanted.
        """
        if not self.ranks.tick():
            return
        try:
            decision = self.ranks.agree(
                due=self._due(),
                stop=stop or self.superseded,
                fail=self._raises and self._problem is not None,
            )
        except Exception as error:  # a peer is gone: nothing can be saved together any more
            self._journal.warn("The ranks cannot agree on checkpoints any more", error)
            self._clock.each_step = None
            self._clock.stop = self._clock.stop or stop
            return
        if decision.fail:
            raise self._failure(self._problem or "the first rank tells why")
        if decision.stop:
            # What the first rank could not commit the others believe to be saved.
            if self.ranks.share(self._clock.cursor > self._saved):
                self.save(wait=True)
        elif decision.save:
            self.save()
        self._clock.stop = decision.stop

    def save(self, *, wait: bool = False, anchor: bool = False) -> None:
        """Save the present state under the present cursor; ``wait`` until it is committed.

        All ranks call it. A state that is committed is not saved again.
        """
        cursor = self._clock.cursor
        path = self._root / checkpoints.folder_name(cursor, self._place.attempt)
        self._pace.at_once = False
        span = self._phases.begin("checkpoint_save")
        try:
            self.join()
            begun = time.monotonic_ns()
            self._enter()
            if self._committed_cursor() == cursor:
                span.end()
                return
            beside = self._background and not wait
            more = self._golden.record(first=self.ranks.first) if self._golden else {}
            taken = self._shards.take(path, copy=self._background, beside=beside, more=more)
            staged = time.monotonic_ns()
        except BaseException as error:
            span.end()
            if not is_failure(error):
                raise
            self._give_up(path, error)
            return
        finally:
            self._pace.saved()
        upload = Upload(
            cursor, lambda: self._finish(path, cursor, taken.write, anchor), self._clock.hurry
        )
        self._upload = upload
        upload.start(background=self._background)
        if wait and not anchor:
            self.join()
        blocking = span.end()
        self._pace.saved()
        self._untold = Untold(upload, taken.copying, begun, staged, blocking, not wait, path)
        if taken.copying is None:
            self._tell_saved()
        if wait:
            self.join()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the upload in flight, at most ``timeout`` seconds; return whether it is over."""
        upload = self._upload
        if upload is None:
            return True
        if not upload.join(timeout):
            return False
        self._tell_saved()
        if upload.error is None:
            self._safe = upload.cursor
        return True

    def leave_anchor(self) -> None:
        """At the end of a training: have its last state committed, as the checkpoint to publish.

        All ranks call it. Raises :class:`CheckpointError` when that fails.
        """
        what = f"the training is complete, but its last state (cursor {self._clock.cursor})"
        saved = self._save_surely(what, anchor=True)
        if not saved and self._committer is not None and self._committer.last is not None:
            self._committer.tell(self._committer.last, upload_ns=0, anchor=True)

    def commit(self) -> str:
        """Have the present state committed; return where its checkpoint is, on all ranks.

        All ranks call it. Raises :class:`CheckpointError` on all of them when that fails.
        """
        self._save_surely(f"the state at cursor {self._clock.cursor}", anchor=False)
        last = self._committer.last if self._committer else None
        uri: str = self.ranks.share(last.uri if last else None)
        return uri

    def _save_surely(self, what: str, *, anchor: bool) -> bool:
        """Have the present state committed; return whether it was not yet."""
        cursor = self._clock.cursor
        self.join()
        if self._committed_cursor() == cursor:
            return False
        for _ in range(_TRIES):
            if self._lost() is None and self._committed_cursor() != cursor:
                self.save(wait=True, anchor=anchor)
        if self._committed_cursor() != cursor:
            raise self._lost() or self._failure(self._problem or "see the warnings before", what)
        return True

    def leave_last(self) -> None:
        """At the end of a training that was stopped: have its last state committed, if possible."""
        self.join()
        if self._clock.cursor > self._saved and self.solo and not self.superseded:
            self.save(wait=True)

    def close(self) -> None:
        """Free what the saves needed."""
        self._shards.close()
        if not self._busy:
            self.ranks.close()
        if self._committer is not None:
            self._committer.fence.close()

    def _enter(self) -> None:
        """Take the lease, once; all ranks call it. Raises :class:`CheckpointError` if refused."""
        if self._entered:
            return
        refused = self.ranks.share(self._committer.fence.enter() if self._committer else None)
        if refused is not None:
            raise refused
        self._entered = True

    @property
    def _busy(self) -> bool:
        return self._upload is not None and not self._upload.over

    @property
    def _saved(self) -> int:
        """The cursor up to which the training is saved, or is being saved."""
        upload = self._upload
        return upload.cursor if upload is not None and upload.error is None else self._safe

    def _finish(
        self, path: Folder, cursor: int, write: Callable[[], Mapping[str, FileDigest]], anchor: bool
    ) -> None:
        """Write and commit: the second half of a save. Raises what goes wrong, after telling it."""
        lane = self._phases.begin("checkpoint_upload") if self._background else None
        try:
            if self._committer is None:
                write()
            else:
                self._committer.commit(path, cursor, write, anchor=anchor)
            self._problem = None
        except BaseException as error:
            self._give_up(path, error)
            raise
        finally:
            if lane is not None:
                lane.end()
        if self._committer is not None:
            self._committer.thin_out()

    def _before_step(self) -> None:
        """Have the state copied before an optimizer changes it; called ahead of its every step."""
        untold = self._untold
        if untold is None or untold.copying is None:
            return
        waiting = None if untold.copying.over else self._phases.begin("checkpoint_save")
        untold.copying.settle()
        if waiting is not None:
            self._untold = untold._replace(blocking_ns=untold.blocking_ns + waiting.end())
        self._tell_saved()

    def _tell_saved(self) -> None:
        """Write into the log how long the last save has kept the training waiting, once."""
        untold, self._untold = self._untold, None
        if untold is None:
            return
        copying, ended_ns = untold.copying, untold.staged_ns
        if untold.typical and self.ranks.first:
            self._pace.learn(untold.blocking_ns)
        if untold.upload.error or (copying and copying.problem):
            return
        if copying:
            ended_ns = copying.ended_ns
        data = {"checkpoint": str(untold.path), "cursor": untold.upload.cursor}
        data |= {"blocking_ns": untold.blocking_ns, "staging_ns": ended_ns - untold.begun_ns}
        if self._golden is not None:
            data["golden_ns"] = self._golden.took_ns
        self._journal.emit(Kind.CHECKPOINT_SAVED, data)

    def _give_up(self, path: Folder, error: BaseException) -> None:
        made_anew = is_change(error)
        self._problem = None if made_anew else reason(error)
        if self._committer is not None:
            if made_anew or not self._raises:
                problem = CheckpointError(reason(error))
                self._journal.warn(f"Checkpoint {path} could not be saved", problem)
            if self._committer.clean_up(path, error) or made_anew:
                self._pace.at_once = True
        self._clock.hurry()

    def _failure(
        self, problem: str, what: str = "training stops because its state"
    ) -> CheckpointError:
        return CheckpointError(
            f"job {self._place.context.key}, attempt {self._place.attempt}: {what} could not be "
            f"saved in {self._root}: {problem}. Clear the task to go on from the checkpoint before "
            "it"
        )

    def _due(self) -> bool:
        """Whether it is time to save, and the upload in flight, if any, is over."""
        late_ns = time.monotonic_ns() - self._pace.due_ns
        if self._busy:
            self._tell_late(late_ns)
            return False
        return late_ns >= 0 and self._clock.cursor != self._saved

    def _tell_late(self, late_ns: int) -> None:
        if self._upload is not None and late_ns > max(self._pace.every_ns, _LATE_NS):
            seconds = (time.monotonic_ns() - self._upload.begun_ns) / 1e9
            late = TimeoutError(
                f"cursor {self._upload.cursor} has been written for {seconds:.0f} s"
            )
            self._journal.warn(f"The next checkpoint waits for the last in {self._root}", late)

    def _lost(self) -> CheckpointError | None:
        lost = self._committer.fence.lost if self._committer else None
        shared: CheckpointError | None = self.ranks.share(lost)
        return shared

    def _committed_cursor(self) -> int | None:
        last = self._committer.last if self._committer else None
        cursor: int | None = self.ranks.share(last.cursor if last else None)
        return cursor
