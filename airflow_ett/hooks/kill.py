"""What it means when Airflow stops a task or a trigger: a table over Airflow's own state.

=====================================  ===================  ======================================
state of the task instance             meaning              what is done
=====================================  ===================  ======================================
failed, success, skipped, removed …    the user ended it    cancel, close the job
restarting                             the user cleared it  cancel; the next try resumes
none, scheduled, queued: of a trigger  the user cleared it  cancel; the next try resumes
none, scheduled, queued: of a task's   Airflow gave its     nothing: whoever comes next adopts
process                                task to another
running, deferred, up_for_retry, …     the worker or the    nothing: whoever comes next adopts
                                       trigger is moved
=====================================  ===================  ======================================

A running task that a user clears is ``restarting`` until its process is gone. A process that is
stopped because its task is to be scheduled anew outlived the scheduler that it belonged to: another
one has reset its task, and nobody has asked for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance


class Kill(StrEnum):
    """The meaning of a kill."""

    ENDED = "ended"
    CLEARED = "cleared"
    MOVED = "moved"


_ENDED = frozenset({"failed", "success", "skipped", "upstream_failed", "removed"})
_TO_BE_SCHEDULED = frozenset({"none", "scheduled", "queued"})


def meaning(state: str | None, *, held: bool = False) -> Kill:
    """Return what a kill means when the task instance is in ``state`` (None: no state).

    ``held`` says that a task's process was stopped, and no trigger.
    """
    text = "none" if state is None else str(state)
    if text in _ENDED:
        return Kill.ENDED
    cleared = text == "restarting" or (text in _TO_BE_SCHEDULED and not held)
    return Kill.CLEARED if cleared else Kill.MOVED


def airflow_state(key: Mapping[str, Any]) -> str | None:
    """Ask Airflow for the state of a job's task instance; ``key`` holds the fields of a job key.

    Never call this inside a signal handler: it talks to the supervisor over a channel that the
    interrupted code may be holding.
    """
    mapped = key["map_index"] >= 0
    states: Mapping[str, Mapping[str, str | None]] = RuntimeTaskInstance.get_task_states(
        dag_id=key["dag_id"],
        task_ids=[key["task_id"]],
        run_ids=[key["run_id"]],
        map_index=key["map_index"] if mapped else None,
    )
    name = f"{key['task_id']}_{key['map_index']}" if mapped else key["task_id"]
    return states.get(key["run_id"], {}).get(name, "removed")
