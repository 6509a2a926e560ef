"""What an app's containers mean in the words that every scheduler shares. Pure.

========================  ==========================================
a container is            its replica is
========================  ==========================================
created                   SUBMITTED; CANCELLED once that was asked for
restarting, paused,       PENDING
removing
running                   RUNNING
exited                    SUCCEEDED with exit code 0, FAILED otherwise
dead                      FAILED
anything else             UNKNOWN
========================  ==========================================

An app is over when all its replicas are. It failed if one of them did; where its end was asked for,
it was cancelled. ``raw`` is the Engine's word for the one that decides: ``OOMKilled`` where that
ran out of memory. It is ``unstarted`` while a container has yet to be started: whoever submits the
app is at it, or has died, and a submit under its name goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from torchx.schedulers.docker_scheduler import LABEL_REPLICA_ID, LABEL_ROLE_NAME

from airflow_ett.launch.status import TERMINAL_STATES, ReplicaStatus, SchedulerStatus

Inspected = Mapping[str, Any]
"""What the Engine tells of one container."""

CANCELLED = ".cancelled"
"""Ends a container's name once the app's end was asked for: so any process can see that it was."""

_STATES = {
    "created": "SUBMITTED",
    "restarting": "PENDING",
    "paused": "PENDING",
    "removing": "PENDING",
    "running": "RUNNING",
    "dead": "FAILED",
}
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def time_ns(text: str) -> int | None:
    """Return a time of the Engine's in UTC nanoseconds, None where it tells of none."""
    found = _TIME.fullmatch(text)
    if found is None or text.startswith("0001-"):
        return None
    zone = "+00:00" if found[3] == "Z" else found[3]
    seconds = int(datetime.fromisoformat(f"{found[1]}{zone}").astimezone(UTC).timestamp())
    return seconds * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))


def status_of(containers: Sequence[Inspected]) -> SchedulerStatus:
    """Return what is known of an app of these containers, of which there is at least one."""
    ordered = sorted(containers, key=_place)
    asked = any(str(one["Name"]).endswith(CANCELLED) for one in ordered)
    replicas = tuple(_replica(one, asked=asked) for one in ordered)
    states = [str(replica.state) for replica in replicas]
    living = [state for state in states if state not in TERMINAL_STATES]
    state = "SUBMITTED" if "SUBMITTED" in living else living[0] if living else _end(states)
    decides = ordered[states.index(state)]
    begun = [time_ns(one["State"]["StartedAt"]) for one in ordered]
    ended = [time_ns(one["State"]["FinishedAt"]) for one in ordered]
    return SchedulerStatus(
        state=state,
        raw=_raw(decides, state, asked=asked),
        allocated_ns=min((ns for ns in begun if ns), default=None),
        started_ns=min((ns for ns in begun if ns), default=None),
        ended_ns=None if living else max((ns for ns in ended if ns), default=None),
        replicas=replicas,
        message=_message(decides),
    )


def _place(one: Inspected) -> tuple[int, int]:
    """Return by what containers are sorted: their roles as they were made, and by number."""
    return time_ns(str(one["Created"])) or 0, int(one["Config"]["Labels"][LABEL_REPLICA_ID])


def _replica(one: Inspected, *, asked: bool) -> ReplicaStatus:
    said, labels = one["State"], one["Config"]["Labels"]
    state = _STATES.get(said["Status"], "UNKNOWN")
    code = said["ExitCode"] if said["Status"] == "exited" else None
    if code is not None:
        state = "SUCCEEDED" if code == 0 else "FAILED"
    if asked and state in ("FAILED", "SUBMITTED"):
        state = "CANCELLED"
    return ReplicaStatus(
        role=labels[LABEL_ROLE_NAME],
        id=int(labels[LABEL_REPLICA_ID]),
        state=state,
        exit_code=code,
        host=one["Config"].get("Hostname") or None,
    )


def _end(states: Sequence[str]) -> str:
    """Return the state of an app whose replicas are all over."""
    return next((end for end in ("FAILED", "CANCELLED") if end in states), "SUCCEEDED")


def _raw(decides: Inspected, state: str, *, asked: bool) -> str:
    said = decides["State"]
    if state == "SUBMITTED":
        return "unstarted"
    if state == "FAILED" and said.get("OOMKilled"):  # it may have run out of memory, and lived on
        return "OOMKilled"
    return f"{said['Status']}, cancelled" if asked else str(said["Status"])


def _message(one: Inspected) -> str:
    name = str(one["Name"]).strip("/")
    error = str(one["State"].get("Error") or "")
    return f"container {name}" + (f": {error}" if error else "")
