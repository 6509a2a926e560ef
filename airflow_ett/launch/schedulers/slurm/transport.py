"""Where Slurm's commands are run, and where the files of its apps lie: one small protocol.

The environment stays out of the commands but for what they need: ``SBATCH_*`` and the like would
change what is asked for, and ``sbatch`` would hand the rest to the job.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from airflow_ett.errors import LaunchError

TIMEOUT_S = 60.0
"""Longer than Slurm's own ``MessageTimeout`` (10 s), which its commands wait for twice or so."""

_NEEDED = (
    *("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME"),
    *("SLURM_CONF", "SLURM_JWT"),
)

_MINE = threading.local()
"""``lock`` is the lock that a thread holds."""

FORMAT = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
"""Times in seconds since 1970, and messages in English."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Stat(NamedTuple):
    """A file's size in bytes, and when it was last changed, in seconds since 1970."""

    size: int
    mtime_s: float


class Commands(Protocol):
    """Runs a command on a machine of the cluster."""

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        """Run ``argv`` with ``input`` as its stdin and return how it ended.

        Raises :class:`LaunchError` where it could not be run, or gave no answer in time.
        """


class Transport(Commands, Protocol):
    """Runs commands on a machine of the cluster, and reaches its files.

    Files raise ``OSError`` of the kind that tells what is wrong with them, and
    :class:`LaunchError` where the machine cannot be reached.
    """

    def state_dir(self, wanted: Path) -> Path:
        """Return the folder of all apps; ``wanted`` is what ``[ett] slurm_state_dir`` says."""

    def address(self, path: Path) -> str:
        """Return what people find a file under."""

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        """Return at most ``size`` bytes from ``offset`` on, all of them where that is negative."""

    def stat(self, path: Path) -> Stat:
        """Return a file's size and age."""

    def write(self, path: Path, text: str) -> None:
        """Write a file for its owner alone, in one piece."""

    def make(self, path: Path) -> None:
        """Make a folder for its owner alone, and those above it, where they are missing."""

    def folders(self, path: Path) -> list[str]:
        """Return the names of the folders in ``path``, sorted; none where it is missing."""

    def locked(self, path: Path) -> AbstractContextManager[None]:
        """Keep others out while the block runs; a holder that dies lets go of it."""


class Local:
    """Runs the commands on this machine. They are found on the worker's PATH.

    Each has a session of its own: Airflow ends a task by signals to its whole process group, and
    nobody knew whether an ``sbatch`` that died of one had submitted the job. One that outlives who
    has started it keeps that one's lock: whoever submits next waits for it.
    """

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        """See :class:`Commands`."""
        lock: int | None = getattr(_MINE, "lock", None)
        try:
            done = subprocess.run(
                argv,
                input=input or "",
                env=_environment(os.environ),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
                start_new_session=True,
                pass_fds=() if lock is None else (lock,),
            )
        except FileNotFoundError:
            raise LaunchError(
                f"there is no {argv[0]} on this machine's PATH: install Slurm's commands where "
                "Airflow's workers and triggerers run, or name an SSH connection to a login node "
                "as cfg's ssh_conn_id"
            ) from None
        except subprocess.TimeoutExpired:
            raise LaunchError(no_answer(argv[0])) from None
        except OSError as error:
            raise LaunchError(f"{argv[0]} could not be run: {error}") from error
        return Result(done.returncode, done.stdout, done.stderr)

    def state_dir(self, wanted: Path) -> Path:
        """See :class:`Transport`."""
        return wanted.absolute()

    def address(self, path: Path) -> str:
        """See :class:`Transport`."""
        return str(path)

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        """See :class:`Transport`."""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def stat(self, path: Path) -> Stat:
        """See :class:`Transport`."""
        found = path.stat()
        return Stat(found.st_size, found.st_mtime)

    def write(self, path: Path, text: str) -> None:
        """See :class:`Transport`."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        draft.write_text(text)
        draft.replace(path)

    def make(self, path: Path) -> None:
        """See :class:`Transport`."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def folders(self, path: Path) -> list[str]:
        """See :class:`Transport`."""
        return sorted(found.name for found in path.glob("*") if found.is_dir())

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """See :class:`Transport`."""
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _MINE.lock = file.fileno()
            try:
                yield
            finally:
                _MINE.lock = None


@dataclass(frozen=True, slots=True)
class Printed:
    """An output in a file of the cluster, as :class:`logs.Output` has it."""

    transport: Transport
    path: Path

    def read(self, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes from ``offset`` on."""
        return self.transport.read(self.path, offset, size)

    def size(self) -> int:
        """Return how many bytes there are."""
        return self.transport.stat(self.path).size

    def __str__(self) -> str:
        return self.transport.address(self.path)


def no_answer(command: str) -> str:
    """Say that a command of Slurm's has taken too long."""
    return (
        f"{command} gave no answer within {TIMEOUT_S:g} s: slurmctld or slurmdbd is overloaded "
        "or away"
    )


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {**{name: environ[name] for name in _NEEDED if name in environ}, **FORMAT}
