"""What rank 0 has printed since anybody last looked, in whichever process that was."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_ett.errors import LaunchError
from airflow_ett.launch.history import Submission
from airflow_ett.launch.joblog import RunDirLog

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway


def read_new(log: RunDirLog, gateway: Gateway, submission: Submission | None) -> str:
    """Return new output of rank 0; how far it was read is kept beside the job's log.

    Nothing is returned while the scheduler or the run directory does not answer.
    """
    if submission is None or submission.handle is None:
        return ""
    mark = log.run_dir.launcher / f"stream-{submission.number:04d}"
    with contextlib.suppress(OSError, LaunchError):
        offset = _offset(mark)
        text, end = gateway.read_log(submission.handle, 0, offset)
        if end != offset:
            draft = mark.with_suffix(".draft")
            draft.write_text(str(end))
            draft.replace(mark)
        return text
    return ""


def _offset(mark: Path) -> int:
    text = mark.read_text() if mark.exists() else ""
    return int(text) if text.isdecimal() else 0
