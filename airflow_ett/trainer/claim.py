"""One Session at a time speaks for a job's process, and for all the processes that it starts.

Two of them would write events under the same numbers, or write over each other's cursor. The claim
lies in the environment, because child processes inherit ``ETT_JOB`` with it.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable

from airflow_ett.trainer.place import Place

VARIABLE = "ETT_SESSION"
"""Who holds the claim: job, attempt and process id. Another job's or attempt's is none here."""

_held = ""
_log = logging.getLogger("airflow_ett.trainer")


def take(place: Place) -> bool:
    """Claim the attempt for this process; warn where a Session in it, or in a parent, has it."""
    global _held
    mine = f"{place.context.key.id}.{place.attempt}:{os.getpid()}"
    present = os.environ.get(VARIABLE, "")
    same_attempt = present.rpartition(":")[0] == mine.rpartition(":")[0]
    # A process that replaced its program (exec) finds its own claim without holding it.
    if same_attempt and (present != mine or _held == mine):
        _log.warning(
            "A Session within another one, or in a child process of one, does nothing: job %s is "
            "measured and checkpointed by the outer one.",
            place.context.key,
        )
        return False
    _held = os.environ[VARIABLE] = mine
    return True


def release() -> None:
    """Give the claim back, so that a later Session may go on."""
    global _held
    if os.environ.get(VARIABLE) == _held:
        del os.environ[VARIABLE]
    _held = ""


def in_children(act: Callable[[], None]) -> None:
    """Have ``act``, a method, called in each forked child, while its object lives."""
    reference = weakref.WeakMethod(act)

    def call() -> None:
        method = reference()
        if method is not None:
            method()

    os.register_at_fork(after_in_child=call)
