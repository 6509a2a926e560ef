"""Whether a training fails in the same place of the same error, so that no retry mends it. Pure."""

from __future__ import annotations

import re

from airflow_ett.events import Cause
from airflow_ett.launch.history import History, Submission

_VARYING = re.compile(r"\w*\d\w*")
"""A word with a digit in it: pids, addresses, ports, sizes and temporary names change from attempt
to attempt without the error being another one. The cursor tells one place from another."""


def repeated(history: History, committed: int) -> bool:
    """Return whether the newest attempt ended as the one before it did.

    Both ended with cause ``application``, of the same error, with the data position at the same
    cursor, and nothing was committed in between: ``committed`` is the cursor of the job's newest
    committed checkpoint. Where nobody knows the cursor, none is the same.
    """
    if len(history.submissions) < 2:
        return False
    before, last = history.submissions[-2:]
    error = _error(last)
    return (
        error is not None
        and error == _error(before)
        and last.cursor is not None
        and last.cursor == before.cursor
        and committed <= last.resume_cursor
    )


def _error(submission: Submission) -> tuple[str, str] | None:
    """Return type and message of what an attempt failed of, its exit code where it has no words.

    None where it did not fail by itself, or nobody knows of what.
    """
    proof = submission.proof
    if not submission.ended or submission.cause is not Cause.APPLICATION:
        return None
    if error := proof.get("error"):
        return str(error.get("type")), _VARYING.sub("#", str(error.get("message")))
    code, number = proof.get("exit_code"), proof.get("signal")
    return None if code is None and number is None else (f"exit code {code}", f"signal {number}")
