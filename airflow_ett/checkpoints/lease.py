"""The lease of a checkpoint directory: one trainer commits there, and a replaced one finds out.

::

    <root>/.lease/00000003.json    the holder; the highest number holds

A lease is taken by making the file of the next number, which is exclusive and whole. Numbers never
fall: no late comer slips in. A heartbeat tells that the holder lives, and finds out who followed.

It lies with the checkpoints, on a file system or in an object store; where that cannot make a file
for one of several alone, with the job's log (see :mod:`airflow_ett.checkpoints.leasefiles`).

Ages are differences of two times stamped by the place itself: no host's clock is compared.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

from airflow_ett.checkpoints.holder import Found, Holder, Ruling, rule
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.checkpoints.leasefiles import FolderFiles, LeaseFiles, Offer


class Refusal(NamedTuple):
    """Why a trainer may not commit; ``superseded`` where it never may again."""

    superseded: bool
    reason: str


class Lease:
    """One trainer's hold on the checkpoint directory ``root``. Threads may share it.

    The lease lies in it, on a file system, unless there are other ``files`` for it.
    """

    def __init__(self, root: Folder, holder: Holder, files: LeaseFiles | None = None) -> None:
        self._root = root
        self._files = FolderFiles(Path(str(root))) if files is None else files
        self._holder = holder
        # One's own after an answer that got lost; processes of two containers may look alike.
        self._content = holder.encode(mark=os.urandom(8).hex())
        self._number = 0
        self._lost: Refusal | None = None
        self._lock = threading.Lock()

    def hold(self) -> Refusal | None:
        """Take the lease, or confirm it and renew its heartbeat; a refusal where that may not be.

        A trainer that was superseded stays so; otherwise it may ask again. Raises ``OSError``
        where the directory cannot be used: then nobody knows, and nothing may be committed.
        """
        with self._lock:
            if self._lost is not None:
                return self._lost
            kept = self._number > 0 and self._files.beat(self._number)
            newest = max(self._newest(), self._number)
            refusal = None if kept and newest == self._number else self._take(newest)
            if refusal is not None and refusal.superseded:
                self._lost = refusal
            return refusal

    def _take(self, number: int) -> Refusal | None:
        """Take the lease after ``number``, the highest one known (0: none)."""
        with self._files.offer(self._content) as offer:
            taken = False
            while not taken:
                refusal = self._judge(number, offer)
                if refusal is not None:
                    return refusal
                if offer.take(number + 1):
                    self._number = number + 1
                # Meanwhile others may have taken that number, or removed it again for a later one.
                number = max(self._newest(), number + 1)
                taken = number == self._number
        self._files.clear(before=self._number)
        return None

    def _judge(self, number: int, offer: Offer) -> Refusal | None:
        """Apply the rules to lease ``number``, which is 0 for none."""
        found = self._read(number, offer) if number else None
        ruling = rule(self._holder, found, after_mine=number > self._number > 0)
        if ruling is Ruling.TAKE or found is None:
            return None
        return Refusal(ruling is Ruling.SUPERSEDED, self._reason(ruling, number, found))

    def _reason(self, ruling: Ruling, number: int, found: Found) -> str:
        if ruling is Ruling.SUPERSEDED:
            return (
                f"the checkpoints in {self._root} were taken over by {found}: {self._holder} "
                "commits nothing more and stops"
            )
        first = "stop that training and" if found.alive else "if that training is over,"
        return (
            f"the checkpoints in {self._root} belong to {found}. Two jobs cannot share a folder: "
            f"give job {self._holder.name} another checkpoint_uri, or {first} remove "
            f"{self._files.name(number)}; then clear the task"
        )

    def _read(self, number: int, offer: Offer) -> Found | None:
        lease = self._files.read(number)
        if lease is None:
            return None
        return Found(Holder.decode(lease.content), (offer.now_ns() - lease.time_ns) / 1e9)

    def _newest(self) -> int:
        return max(self._files.numbers(), default=0)
