"""Names of apps: valid for every scheduler, the same every time, different for every submission."""

from __future__ import annotations

import hashlib
import re

from airflow_ett.events import JobKey

_SUFFIX_ROOM = 31
"""What TorchX appends on Kubernetes: ``-`` and 14 random characters, ``-<role>-<replica>-0`` with a
role of up to 8 and a replica of up to 4 digits."""

_PREFIX = "ett-"
_DIGEST = 12


def app_name(job: JobKey, submission: int, born_ns: int = 0, limit: int = 63) -> str:
    """Return the name of a job's submission: lower-case letters, digits and dashes, a letter first.

    ``limit`` is the scheduler's longest name; room for what TorchX appends is left. The end is a
    hash of job, birth and submission, which makes the name unique; the readable part before it does
    not. ``born_ns`` is when the job was opened: a job whose run directory was removed and that is
    begun again must not find the apps of its former life.

    Raises ``ValueError`` when ``limit`` leaves no room for the hash.
    """
    digest = hashlib.sha256(f"{job.id}/{born_ns}/{submission}".encode()).hexdigest()[:_DIGEST]
    tail = f"{submission}-{digest}"
    room = limit - _SUFFIX_ROOM - len(_PREFIX) - len(tail) - 1
    if room < 0:
        raise ValueError(f"a limit of {limit} characters leaves no room for {_PREFIX}{tail}")
    readable = re.sub(r"[^a-z0-9]+", "-", f"{job.dag_id}-{job.task_id}".lower()).strip("-")
    head = readable[:room].rstrip("-")
    return _PREFIX + (f"{head}-" if head else "") + tail
