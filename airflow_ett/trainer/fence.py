"""Whether a trainer may still commit: it has the lease, and no submission has followed its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from airflow_ett.checkpoints.holder import Holder
from airflow_ett.checkpoints.layout import LEASE, Folder
from airflow_ett.checkpoints.lease import Lease, Refusal
from airflow_ett.checkpoints.leasefiles import PlacedFiles
from airflow_ett.errors import CheckpointError, ConfigurationError
from airflow_ett.storage import open_storage
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.place import Place, ask

BEAT_S = 10.0

_ANSWER_S = 5.0
"""How long a commit waits for the job's log, which may be behind a network: SIGKILL may be near."""

_log = logging.getLogger("airflow_ett.trainer")


class Fence:
    """The first rank's right to commit in ``root``, renewed by a thread every ten seconds.

    The lease lies with the checkpoints; where their store cannot make a file for one of several
    alone, with the job's log. While a log behind a network is away, a lease that lies elsewhere
    decides alone, since whoever follows takes that first.

    ``on_superseded`` is called, on any thread, when a later trainer has replaced this one.
    """

    def __init__(
        self, place: Place, root: Folder, journal: Journal, on_superseded: Callable[[], None]
    ) -> None:
        self._place = place
        self._root = root
        self._journal = journal
        self._on_superseded = on_superseded
        self._lease: Lease | None = None
        self._with_the_log = False
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
        latest = self._latest_submission()
        if latest > mine:
            raise self._give_way(
                f"submission {latest} has replaced submission {mine} of job "
                f"{self._place.context.key}: this trainer commits nothing more and stops"
            )
        self._hold()

    def close(self) -> None:
        """Let the heartbeat end. The lease stays and tells who was here last."""
        self._closed.set()

    def _latest_submission(self) -> int:
        """Return the number of the latest submission, as far as it is known.

        Raises ``OSError`` where it is not, and nothing else would tell.
        """
        try:
            intents = ask(self._intents, _ANSWER_S)
        except OSError:
            if self._with_the_log:
                raise
            intents = []
        return max((int(n) for n in intents if n.isdecimal()), default=0)

    def _intents(self) -> list[str]:
        found = self._place.log().entries("launcher/submissions", fresh=False)
        return [entry.name.removesuffix(".json") for entry in found]

    def _ask_lease(self) -> Refusal | None:
        """Take or renew the lease; the first time finds out where it is to lie."""
        try:
            if self._lease is None:
                self._lease = self._lease_beside_the_checkpoints()
            try:
                return self._lease.hold()
            except ConfigurationError:  # their store makes no file for one of several alone
                self._lease, self._with_the_log = self._lease_beside_the_log(), True
                return self._lease.hold()
        except ConfigurationError as error:
            raise CheckpointError(f"nothing can be committed in {self._root}: {error}") from error

    def _lease_beside_the_checkpoints(self) -> Lease:
        files = None
        if not isinstance(self._root, Path):
            files = PlacedFiles(open_storage(f"{self._root}/{LEASE}"), folder="")
        return Lease(self._root, _holder(self._place), files)

    def _lease_beside_the_log(self) -> Lease:
        place = self._place
        if place.context.log:
            return Lease(self._root, _holder(place), PlacedFiles(place.log()))
        return Lease(place.run_dir.checkpoints, _holder(place))

    def _hold(self) -> None:
        try:
            refusal = self._ask_lease()
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
