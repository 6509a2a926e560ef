"""An app's folder: its name is the app's, and all that outlives the process that submitted it.

It lies below ``[ett] slurm_state_dir``, which workers, triggerers and nodes see, or on the cluster,
where workers and triggerers reach it by ssh::

    app.json    role and number of replicas
    task        what each node runs, with the app's environment: for its owner alone
    job         number of the Slurm job, once known
    cancel      made when its end was asked for
    over        number of the job whose end was told, which a slurmctld that is killed may forget:
                then it begins again, and leaves at once
    lock        held while it is submitted (by ssh, ``lock.busy`` by what is run meanwhile, too)
    logs/       one file per replica, and ``batch``: what Slurm itself and the batch script say

Its methods raise ``OSError`` where the folder cannot be used, and :class:`LaunchError` where the
cluster cannot be reached.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_ett.launch.schedulers.slurm.transport import Local, Transport

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_HERE = Local()
_MISSING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Shape:
    """An app's one role, and how many nodes it has."""

    role: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder at ``path``, which need not exist, among the ``files`` of a machine."""

    path: Path
    files: Transport = _HERE

    @property
    def task(self) -> Path:
        """What each node runs."""
        return self.path / "task"

    @property
    def batch_log(self) -> Path:
        """What the batch script prints."""
        return self.path / "logs" / "batch"

    def log(self, role: str, replica: int | str) -> Path:
        """The output of a replica, of all its runs."""
        return self.path / "logs" / f"{role}-{replica}"

    def write(self, shape: Shape, task: str) -> None:
        """Make the folder with what the nodes need."""
        self.files.make(self.path / "logs")
        self.files.write(self.task, task)
        content = json.dumps({"role": shape.role, "n": shape.replicas})
        self.files.write(self.path / "app.json", content)

    def shape(self) -> Shape | None:
        """Return what the app is made of, None where the folder is not whole."""
        with contextlib.suppress(*_MISSING, ValueError, KeyError, TypeError):
            read = json.loads(self.files.read(self.path / "app.json"))
            return Shape(str(read["role"]), int(read["n"]))
        return None

    def job_id(self) -> int | None:
        """Return the number of the Slurm job, None while nobody has noted it."""
        return self._number("job")

    def note_job(self, job_id: int) -> None:
        """Note the number of the Slurm job."""
        self.files.write(self.path / "job", f"{job_id}\n")

    def cancelled(self) -> bool:
        """Return whether the app's end was asked for."""
        try:
            self.files.stat(self.path / "cancel")
        except _MISSING:
            return False
        return True

    def note_cancel(self) -> None:
        """Note that the app's end was asked for."""
        self.files.write(self.path / "cancel", "")

    def note_over(self, job_id: int) -> None:
        """Note that the app's job has ended for good; where that cannot be written, it is not."""
        with contextlib.suppress(OSError):
            if self._number("over") != job_id:
                self.files.write(self.path / "over", f"{job_id}\n")

    def age_s(self, now_s: float) -> float:
        """Return how long ago the app was written down, in seconds."""
        return now_s - self.files.stat(self.path / "app.json").mtime_s

    def _number(self, name: str) -> int | None:
        with contextlib.suppress(*_MISSING, ValueError):
            return int(self.files.read(self.path / name))
        return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other submitters out."""
        self.files.make(self.path)
        with self.files.locked(self.path / "lock"):
            yield


def pattern(path: Path, task: str = "") -> str:
    """Return a file's path as Slurm takes an output's: what follows a % would be replaced.

    ``task`` is what to add to its name, as such a pattern.
    """
    return str(path).replace("%", "%%") + task
