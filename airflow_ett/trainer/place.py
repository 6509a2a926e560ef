"""Where a process stands in its job, read from its environment, and when it began."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import AttemptId, JobContext, RunDir


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
        """The job's run directory."""
        return RunDir(Path(self.context.run_dir))


def read_place(environ: Mapping[str, str] = os.environ) -> Place | None:
    """Return where this process stands, None outside a launched job.

    Raises :class:`EventLogError` where the job's context cannot be read.
    """
    text = environ.get(JOB_VARIABLE)
    if not text:
        return None
    context = JobContext.decode(text)
    restarts = (_whole(environ, n) for n in ("SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"))
    return Place(
        context=context,
        attempt=AttemptId(context.submission, *restarts),
        rank=_whole(environ, "RANK"),
        local_rank=_whole(environ, "LOCAL_RANK"),
        world_size=_whole(environ, "WORLD_SIZE", 1),
        node=_whole(environ, "ETT_NODE", _whole(environ, "GROUP_RANK")),
    )


def process_start_ns() -> int:
    """Return when this process began, UTC nanoseconds (the kernel counts in ticks of 10 ms)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - began)


def _whole(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else default
