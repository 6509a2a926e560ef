"""Where a process stands in its job, read from its environment, and when it began."""

from __future__ import annotations

import functools
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from airflow_ett.config import JOB_VARIABLE, RESTART_VARIABLE, TOKEN_VARIABLE
from airflow_ett.errors import EventLogError
from airflow_ett.events import AttemptId, JobContext, RunDir

if TYPE_CHECKING:
    from airflow_ett.storage import Storage

_Answer = TypeVar("_Answer")


class Place(NamedTuple):
    """A process of a launched job: its context, its attempt and its ranks."""

    context: JobContext
    attempt: AttemptId
    rank: int
    local_rank: int
    world_size: int
    node: int

    @property
    def run_dir(self) -> RunDir:
        """The job's run directory; where the log lies elsewhere, this node's part of it."""
        return RunDir(Path(self.context.run_dir))

    @property
    def first_number(self) -> int:
        """The number of a process's first event: where the log lies elsewhere, the time in ms.

        A container that a scheduler starts again elsewhere, or without its files, may have the same
        attempt and process id, and would else number other events as those that have arrived.
        """
        return time.time_ns() // 1_000_000 if self.context.log else 0

    def log(self) -> Storage:
        """Return the place where the job's log lies: what all its nodes and launchers see.

        Nothing is connected yet. Raises :class:`ConfigurationError` where a package is missing.
        """
        return _open(self.context.log or self.context.run_dir)


def read_place(environ: Mapping[str, str] = os.environ) -> Place | None:
    """Return where this process stands, None outside a launched job.

    Raises :class:`EventLogError` where the job's context cannot be read, or the node's own folder
    is somebody else's.
    """
    text = environ.get(JOB_VARIABLE)
    if not text:
        return None
    context = JobContext.decode(text)
    if context.log:
        context = replace(context, run_dir=str(_own_folder(context, environ)))
    restart = _whole(environ, RESTART_VARIABLE, _whole(environ, "SLURM_RESTART_COUNT"))
    elastic = _whole(environ, "TORCHELASTIC_RESTART_COUNT")
    return Place(
        context=context,
        attempt=AttemptId(context.submission, restart, elastic),
        rank=_whole(environ, "RANK"),
        local_rank=_whole(environ, "LOCAL_RANK"),
        world_size=_whole(environ, "WORLD_SIZE", 1),
        node=_whole(environ, "ETT_NODE", _whole(environ, "GROUP_RANK")),
    )


def _own_folder(context: JobContext, environ: Mapping[str, str]) -> Path:
    """Return the node's run directory: a launcher elsewhere knows only how to call it.

    It is below the folder for temporary files, which others may write to, too.
    """
    path = Path(context.run_dir)
    if path.is_absolute():
        return path
    root = Path(environ.get("TMPDIR") or "/tmp", f"airflow-ett-{os.getuid()}")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = root.lstat()
    except OSError as error:
        raise EventLogError(f"{root}, for the job's log, cannot be made: {error}") from error
    if facts.st_uid != os.getuid() or not stat.S_ISDIR(facts.st_mode):
        raise EventLogError(f"{root} is somebody else's: remove it, or set TMPDIR")
    return root / path


def ask(act: Callable[[], _Answer], within_s: float) -> _Answer:
    """Return what ``act``, which uses a network, returns or raises.

    Raises ``TimeoutError``, an ``OSError``, where it takes longer; it is left to itself then.
    """
    answers: list[_Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(act())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="ett_question", daemon=True)
    thread.start()
    thread.join(within_s)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"no answer within {within_s:g} s")
    return answers[0]


def process_start_ns() -> int:
    """Return when this process began, UTC nanoseconds (the kernel counts in ticks of 10 ms)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - began)


def _whole(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else default


@functools.cache
def _open(place: str) -> Storage:
    """Open a place, once: with it a process keeps the token that it has renewed."""
    from airflow_ett.storage import open_storage

    return open_storage(place, lambda: os.environ.get(TOKEN_VARIABLE, ""))
