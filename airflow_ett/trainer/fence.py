"""Whether a trainer may still commit: it has the lease, and no submission has followed its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from airflow_ett.checkpoints.holder import Holder
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.checkpoints.lease import Lease
from airflow_ett.errors import CheckpointError
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.place import Place

BEAT_S = 10.0

_log = logging.getLogger("airflow_ett.trainer")


class Fence:
    """The first rank's right to commit in ``root``, renewed by a thread every ten seconds.

    ``on_superseded`` is called, on any thread, when a later trainer has replaced this one.
    """

    def __init__(
        self, place: Place, root: Folder, journal: Journal, on_superseded: Callable[[], None]
    ) -> None:
        self._place = place
        self._root = root
        self._journal = journal
        self._on_superseded = on_superseded
        # An object store cannot make a file for one of several alone; the run directory can.
        shared = root if isinstance(root, Path) else place.run_dir.checkpoints
        self._lease = Lease(shared, _holder(place))
        self._closed = threading.Event()
        self._beating = False
        self.held = False
        """Whether the lease was there when it was last asked for."""
        self.lost: CheckpointError | None = None
        """Why this trainer never commits again, once it has been replaced."""

    def enter(self) -> CheckpointError | None:
        """Take the lease before anything is read or written; the error where it is another's.

        Where it cannot be taken for now that is warned about, and the commits try again.
        """
        context = self._place.context
        try:
            if context.resume_cursor and not self._root.is_dir():
                return None  # gone, as the restore will say: make no folder where a mount is away
            self._hold()
        except CheckpointError as error:
            return error
        except OSError as error:
            self._journal.warn(f"Nothing can be committed in {self._root} for now", error)
        return None

    def check(self) -> None:
        """Raise :class:`CheckpointError` where this trainer must not commit.

        Raises ``OSError`` where that cannot be known.
        """
        mine = self._place.context.submission
        intents = (self._place.run_dir.launcher / "submissions").glob("*.json")
        latest = max((int(p.stem) for p in intents if p.stem.isdecimal()), default=mine)
        if latest > mine:
            raise self._give_way(
                f"submission {latest} has replaced submission {mine} of job "
                f"{self._place.context.key}: this trainer commits nothing more and stops"
            )
        self._hold()

    def close(self) -> None:
        """Let the heartbeat end. The lease stays and tells who was here last."""
        self._closed.set()

    def _hold(self) -> None:
        try:
            refusal = self._lease.hold()
        except OSError:
            self.held = False
            raise
        self.held = refusal is None
        if refusal is not None and refusal.superseded:
            raise self._give_way(refusal.reason)
        if refusal is not None:
            raise CheckpointError(refusal.reason)
        if not self._beating:
            self._beating = True
            threading.Thread(target=self._beat, name="checkpoint_lease", daemon=True).start()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S) and self.lost is None:
            try:
                self._hold()
            except CheckpointError as error:
                self._journal.warn("The checkpoints were lost to another trainer", error)
            except OSError:
                continue  # the next beat tries again, and no commit goes without

    def _give_way(self, reason: str) -> CheckpointError:
        self.lost = CheckpointError(reason)
        self._on_superseded()
        return self.lost


def _holder(place: Place) -> Holder:
    return Holder(
        job=place.context.key.id,
        name=str(place.context.key),
        attempt=place.attempt,
        host=os.uname().nodename,
        pid=os.getpid(),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    )
