"""The first rank's part of a save: to commit what all ranks have written, and thin out the rest."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint, FileDigest
from airflow_ett.checkpoints.commit import age
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import CheckpointError
from airflow_ett.events import Kind
from airflow_ett.trainer.fence import Fence
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.place import Place
from airflow_ett.trainer.saveerrors import is_full

KEEP = 2
"""How many committed checkpoints are kept, while there is room for a third; the last one of a
finished training is its anchor."""

_log = logging.getLogger("airflow_ett.trainer")


class Committer:
    """Commits below ``root`` while ``fence`` allows; ``last`` is what was committed last."""

    def __init__(self, place: Place, root: Folder, journal: Journal, fence: Fence) -> None:
        self._place = place
        self._root = root
        self._journal = journal
        self.fence = fence
        self.last: Checkpoint | None = None
        self._keep = KEEP

    def commit(
        self,
        path: Folder,
        cursor: int,
        write: Callable[[], Mapping[str, FileDigest]],
        *,
        anchor: bool,
    ) -> None:
        """Have the folder ``path`` written and commit it, with the files that ``write`` tells of.

        Raises what prevents it; then nothing is committed.
        """
        begun = time.monotonic_ns()
        self.last = checkpoints.commit(
            path,
            job=self._place.context.key.id,
            attempt=self._place.attempt,
            epoch=self._place.context.epoch,
            cursor=cursor,
            written=write(),
            check=self.fence.check,
        )
        self.tell(self.last, upload_ns=time.monotonic_ns() - begun, anchor=anchor)

    def tell(self, saved: Checkpoint, *, upload_ns: int, anchor: bool) -> None:
        """Write into the log that ``saved`` is committed."""
        data = {
            "checkpoint": saved.uri,
            "cursor": saved.cursor,
            "bytes": saved.manifest.size,
            "upload_ns": upload_ns,
            "anchor": anchor,
        }
        self._journal.emit(Kind.CHECKPOINT_COMMITTED, data)

    def thin_out(self) -> None:
        """Remove the older checkpoints, as far as this trainer may."""
        try:
            self.fence.check()
            checkpoints.retain(self._root, keep=self._keep, attempt=self._place.attempt)
        except (CheckpointError, OSError) as error:
            self._journal.warn(f"Older checkpoints in {self._root} could not be removed", error)

    def clean_up(self, path: Folder, error: BaseException) -> bool:
        """Remove what a save that failed has left; on a full disk make room for the next one.

        Returns whether there is more room now.
        """
        if not self.fence.held:
            return False  # the folder may be somebody else's by now
        with contextlib.suppress(OSError):
            checkpoints.discard(path)
        return is_full(error) and self._make_room()

    def _make_room(self) -> bool:
        """Keep but one checkpoint from now on, once the last one has proved whole."""
        try:
            self.fence.check()
            kept = checkpoints.list_checkpoints(str(self._root))
            newest = max(kept, key=age, default=None)
            if newest is not None:
                checkpoints.verify(newest)
            checkpoints.retain(self._root, keep=1, attempt=self._place.attempt)
        except (CheckpointError, OSError) as error:
            self._journal.warn(f"No room could be made in {self._root}", error)
            return False
        self._keep = 1
        if len(kept) > 1:
            _log.warning(
                "The disk of %s is full: of its checkpoints only the newest is kept.", self._root
            )
        return len(kept) > 1
