"""The first rank's part of a save: to commit what all ranks have written, and thin out the rest."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint
from airflow_ett.errors import CheckpointError
from airflow_ett.events import Kind
from airflow_ett.trainer.fence import Fence
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.place import Place

KEEP = 2
"""How many committed checkpoints are kept; the last one of a finished training is its anchor."""


class Committer:
    """Commits below ``root`` while ``fence`` allows; ``last`` is what was committed last."""

    def __init__(
        self, place: Place, root: Path, journal: Journal, phases: Phases, fence: Fence
    ) -> None:
        self._place = place
        self._root = root
        self._journal = journal
        self._phases = phases
        self.fence = fence
        self.last: Checkpoint | None = None

    def start(
        self, upload: Future[Any], path: Path, cursor: int, *, anchor: bool
    ) -> threading.Thread:
        """Commit the folder ``path`` beside the training, as soon as its upload is done."""
        thread = threading.Thread(
            target=self._commit,
            args=(upload, path, cursor, anchor),
            name="checkpoint_upload",
            daemon=True,
        )
        thread.start()
        return thread

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

    def _commit(self, upload: Future[Any], path: Path, cursor: int, anchor: bool) -> None:
        place = self._place
        begun = time.monotonic_ns()
        try:
            with self._phases.begin("checkpoint_upload"):
                upload.result()
                self.last = checkpoints.commit(
                    path,
                    job=place.context.key.id,
                    attempt=place.attempt,
                    epoch=place.context.epoch,
                    cursor=cursor,
                    check=self.fence.check,
                )
            self.tell(self.last, upload_ns=time.monotonic_ns() - begun, anchor=anchor)
        except BaseException as error:  # torch's CheckpointException is no Exception
            self._journal.warn(f"Checkpoint {path} could not be committed", error)
            if self.fence.held:  # else the folder may be somebody else's by now
                with contextlib.suppress(OSError):
                    checkpoints.discard(path)
            return
        try:
            self.fence.check()
            checkpoints.retain(self._root, keep=KEEP, attempt=place.attempt)
        except (CheckpointError, OSError) as error:
            self._journal.warn(f"Older checkpoints in {self._root} could not be removed", error)
