"""What rank 0 has printed since anybody last looked, in whichever process that was."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from airflow_ett.errors import JobLogError, LaunchError
from airflow_ett.launch.history import Submission
from airflow_ett.launch.joblog import JobLog

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway


def read_new(log: JobLog, gateway: Gateway, submission: Submission | None) -> str:
    """Return new output of rank 0; how far it was read is kept with the job's log.

    Nothing is returned while the scheduler or the log does not answer.
    """
    if submission is None or submission.handle is None:
        return ""
    with contextlib.suppress(JobLogError, LaunchError):
        offset = log.shown(submission.number)
        text, end = gateway.read_log(submission.handle, 0, offset)
        if end != offset:
            log.note_shown(submission.number, end)
        return text
    return ""
