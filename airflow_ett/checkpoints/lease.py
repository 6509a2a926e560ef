"""The lease of a checkpoint directory: one trainer commits there, and a replaced one finds out.

::

    <root>/.lease/00000003.json    the holder; the highest number holds, a heartbeat touches it

A lease is taken by linking a finished file to the next number, which is exclusive and whole on
local disks and on NFS; then the former ones are removed. So a former holder's heartbeat fails at
the file server itself, whatever its client has cached. Numbers never fall: no late comer slips in.

Ages are differences of two files' times, stamped by the file system: no host's clock is compared.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

from airflow_ett.checkpoints.holder import Found, Holder, Ruling, rule
from airflow_ett.checkpoints.layout import LEASE
from airflow_ett.events.exclusive import draft, link


class Refusal(NamedTuple):
    """Why a trainer may not commit; ``superseded`` where it never may again."""

    superseded: bool
    reason: str


class Lease:
    """One trainer's hold on the checkpoint directory ``root``. Threads may share it."""

    def __init__(self, root: Path, holder: Holder) -> None:
        self._root = root
        self._folder = root / LEASE
        self._holder = holder
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
            kept = self._beat()
            newest = max(self._newest(), self._number)
            refusal = None if kept and newest == self._number else self._take(newest)
            if refusal is not None and refusal.superseded:
                self._lost = refusal
            return refusal

    def _beat(self) -> bool:
        """Renew the heartbeat; False without a lease, or where another's taking has removed it."""
        if not self._number:
            return False
        try:
            os.utime(self._path(self._number))
        except FileNotFoundError:
            return False
        return True

    def _take(self, number: int) -> Refusal | None:
        """Take the lease after ``number``, the highest one known (0: none)."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with draft(self._folder, self._holder.encode()) as finished:
            now_ns, taken = finished.stat().st_mtime_ns, False
            while not taken:
                refusal = self._judge(number, now_ns)
                if refusal is not None:
                    return refusal
                if link(finished, self._path(number + 1)):
                    self._number = number + 1
                # Meanwhile others may have taken that number, or removed it again for a later one.
                number = max(self._newest(), number + 1)
                taken = number == self._number
        for former in self._numbers():
            if former < self._number:
                self._path(former).unlink(missing_ok=True)
        return None

    def _judge(self, number: int, now_ns: int) -> Refusal | None:
        """Apply the rules to lease ``number``, which is 0 for none."""
        found = self._read(number, now_ns) if number else None
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
            f"{self._path(number)}; then clear the task"
        )

    def _read(self, number: int, now_ns: int) -> Found | None:
        try:
            with self._path(number).open("rb") as file:
                silent_ns = now_ns - os.fstat(file.fileno()).st_mtime_ns
                return Found(Holder.decode(file.read()), silent_ns / 1e9)
        except FileNotFoundError:
            return None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.json"

    def _numbers(self) -> list[int]:
        try:
            stems = [p.stem for p in self._folder.iterdir() if p.suffix == ".json"]
        except FileNotFoundError:
            return []
        return [int(stem) for stem in stems if stem.isdecimal()]

    def _newest(self) -> int:
        return max(self._numbers(), default=0)
