"""How the process of a task ends that Airflow stops: by what Airflow's own state says.

==========================  ============================  =========================================
what happened               the training                  how the process ends
==========================  ============================  =========================================
a user marked it failed     cancelled once, job closed    failed: that is what the user said
marked success or skipped   cancelled once, job closed    skipped: nobody is told of a failure
a user cleared it           cancelled; next try resumes   skipped: nothing has failed
the worker is evicted       goes on                       rescheduled: the try goes on elsewhere
Airflow does not answer     goes on                       rescheduled: it may be an eviction
given to another process    goes on                       skipped: the task is not this process's
==========================  ============================  =========================================

Airflow keeps its own state in all rows but those of the eviction, whatever the process says.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    AirflowRuntimeError,
    AirflowSkipException,
)

from airflow_ett.errors import EndedByUser, Fenced, JobLogError, LaunchError
from airflow_ett.events import Cause
from airflow_ett.hooks.kill import Kill, airflow_state, meaning
from airflow_ett.operators.ending import KILL_WAIT_S

if TYPE_CHECKING:
    from airflow.sdk.types import Logger


class Watched(Protocol):
    """What of a job's watcher a kill needs. Its methods raise :class:`LaunchError`."""

    def user_restart(self) -> None:
        """Have the app end: its task was cleared."""

    def user_cancel(self, wait_s: float) -> object:
        """Have the app end for good; wait so long for it at most."""


MOVED_DELAY = timedelta(seconds=60)
"""After an eviction the same try goes on so much later: by then Airflow has heard that the process
is over. It takes a try that goes on before that for one that was killed, and fails it."""


def stop(log: Logger, key: Mapping[str, Any], watcher: Watched | None) -> NoReturn:
    """Do what the kill of a task's process asks for and raise what ends the process.

    ``key`` holds the fields of the job's key. Without a ``watcher`` the job has not begun, or its
    log is away.
    """
    state = _state(log, key)
    kill = meaning(state, held=True)
    log.info("Task stopped while it is %s: %s", state, kill)
    if kill is Kill.MOVED:
        if state != "running":
            raise AirflowSkipException("Airflow has given this task to another process.")
        at = datetime.now(UTC) + MOVED_DELAY
        raise AirflowRescheduleException(at)  # type: ignore[no-untyped-call]
    told = watcher is None or _tell(log, watcher, kill)
    if kill is Kill.CLEARED:
        raise AirflowSkipException("Cleared by a user; the next try resumes.")
    if told and state in ("success", "skipped"):
        raise AirflowSkipException(f"Marked {state} by a user.")
    raise EndedByUser("Ended by a user.", cause=Cause.USER_CANCELLED)


def _state(log: Logger, key: Mapping[str, Any]) -> str | None:
    """Ask Airflow, and once more; without an answer the process counts as evicted.

    A training that goes on although a user ended it can still be ended; one that was cancelled
    although nobody asked for it is lost.
    """
    for _ in range(2):
        try:
            return airflow_state(key)
        except (AirflowRuntimeError, OSError, EOFError) as error:
            log.warning("Airflow does not tell in which state the task is: %s", error)
    return "running"


def _tell(log: Logger, watcher: Watched, kill: Kill) -> bool:
    """Have the training ended as a user wants; return whether the scheduler could be told.

    If not, or if the log is away, it is told again by whoever comes next: the task's end, or after
    a clear the next try.
    """
    try:
        if kill is Kill.CLEARED:
            watcher.user_restart()
        else:
            watcher.user_cancel(KILL_WAIT_S)
    except Fenced:
        raise
    except (LaunchError, JobLogError) as error:
        log.warning("%s It is told again.", error)
        return False
    return True
