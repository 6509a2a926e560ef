"""An app's folder: its name is the app's, and all that outlives the process that submitted it.

It lies below ``[ett] slurm_state_dir``, which workers, triggerers and nodes see::

    app.json    role and number of replicas
    task        what each node runs, with the app's environment: for its owner alone
    job         number of the Slurm job, once known
    cancel      made when its end was asked for
    lock        held while it is submitted
    logs/       one file per replica, and ``batch``: what Slurm itself and the batch script say
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Shape:
    """An app's one role, and how many nodes it has."""

    role: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder at ``path``, which need not exist."""

    path: Path

    @property
    def task(self) -> Path:
        """What each node runs."""
        return self.path / "task"

    @property
    def cancel(self) -> Path:
        """Exists once the app's end was asked for."""
        return self.path / "cancel"

    @property
    def batch_log(self) -> Path:
        """What the batch script prints."""
        return self.path / "logs" / "batch"

    def log(self, role: str, replica: int | str) -> Path:
        """The output of a replica, of all its runs."""
        return self.path / "logs" / f"{role}-{replica}"

    def write(self, shape: Shape, task: str) -> None:
        """Make the folder with what the nodes need. Raises ``OSError``."""
        (self.path / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(self.task, task)
        _write(self.path / "app.json", json.dumps({"role": shape.role, "n": shape.replicas}))

    def shape(self) -> Shape | None:
        """Return what the app is made of, None where the folder is not whole."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            read = json.loads((self.path / "app.json").read_text())
            return Shape(str(read["role"]), int(read["n"]))
        return None

    def job_id(self) -> int | None:
        """Return the number of the Slurm job, None while nobody has noted it."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / "job").read_text())
        return None

    def note_job(self, job_id: int) -> None:
        """Note the number of the Slurm job. Raises ``OSError``."""
        _write(self.path / "job", f"{job_id}\n")

    def age_s(self, now_s: float) -> float:
        """Return how long ago the app was written down, in seconds."""
        return now_s - (self.path / "app.json").stat().st_mtime

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other submitters out. Raises ``OSError`` where the folder is away."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.path / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _write(path: Path, text: str) -> None:
    """Write a file for its owner alone, in one piece."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600, exist_ok=False)
    draft.write_text(text)
    draft.replace(path)
