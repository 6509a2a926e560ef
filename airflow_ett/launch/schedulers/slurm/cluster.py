"""A cluster as this process reaches it: one for all that watch its jobs here.

Its apps' jobs are found by what their folders say, which is remembered: on the way to a folder may
lie a network.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TypeVar

from airflow_ett.launch.schedulers.slurm.answers import Job
from airflow_ett.launch.schedulers.slurm.asking import Asking
from airflow_ett.launch.schedulers.slurm.folder import Folder, Shape
from airflow_ett.launch.schedulers.slurm.ssh import Ssh
from airflow_ett.launch.schedulers.slurm.transport import Local, Transport

T = TypeVar("T")

_CLOCKS_MIN = 10
"""Minutes by which the clocks of folder and accounts may differ."""

_REMEMBERED = 10_000
"""Apps; then all are looked up anew."""


class Cluster:
    """Safe to use from several threads."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.asking = Asking(transport)
        self._shapes: dict[Path, Shape] = {}
        self._numbers: dict[Path, int] = {}

    def shape(self, folder: Folder) -> Shape | None:
        """Return what an app is made of, None where it was never written down in full."""
        known = self._shapes.get(folder.path) or folder.shape()
        if known is not None:
            _remember(self._shapes, folder.path, known)
        return known

    def job(self, folder: Folder) -> Job | None:
        """Return an app's job as the cluster sees it, None where it knows none.

        Raises :class:`LaunchError` where the cluster cannot be asked.
        """
        known = self._numbers.get(folder.path)
        job = self._numbered(folder, known) if known is not None else None
        if job is not None:
            return job
        noted = folder.job_id()
        if noted is not None and noted != known:
            _remember(self._numbers, folder.path, noted)
            job = self._numbered(folder, noted)
        if job is None:  # whoever submitted it again may have died before noting that
            job = self.asking.named(folder.path.name)
            if job is None and noted is None:
                job = self._accounted(folder)
            if job is not None:
                self.note(folder, job.id)
        return job

    def note(self, folder: Folder, job_id: int) -> None:
        """Note which job is an app's. Raises ``OSError``."""
        folder.note_job(job_id)
        _remember(self._numbers, folder.path, job_id)

    def _numbered(self, folder: Folder, job_id: int) -> Job | None:
        job = self.asking.job(job_id)
        return job if job is not None and job.name == folder.path.name else None  # they come again

    def _accounted(self, folder: Folder) -> Job | None:
        """Look an app's job up in the accounts, by name, since its folder was made."""
        minutes = int(folder.age_s(time.time()) / 60) + _CLOCKS_MIN
        which = (f"--name={folder.path.name}", f"--starttime=now-{minutes}minutes")
        found = [job for job in self.asking.accounted(*which) if not job.refused]
        return max(found, key=lambda job: job.id, default=None)


class _Clusters:
    """The clusters of this process, made when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, Cluster] = {}

    def get(self, conn_id: str) -> Cluster:
        with self._lock:
            # The machine's own cluster is another one where SLURM_CONF says so.
            which = conn_id or f":{os.environ.get('SLURM_CONF', '')}"
            if which not in self._made:
                self._made[which] = Cluster(Ssh(conn_id) if conn_id else Local())
            return self._made[which]


_clusters = _Clusters()


def cluster(conn_id: str) -> Cluster:
    """Return the cluster behind an SSH connection of Airflow's, or, of "", this machine's own.

    There is one of each in a process, whoever asks.
    """
    return _clusters.get(conn_id)


def _forget() -> None:
    """Begin anew in a child: a session has one owner."""
    global _clusters
    _clusters = _Clusters()


os.register_at_fork(after_in_child=_forget)


def _remember(known: dict[Path, T], path: Path, value: T) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[path] = value
