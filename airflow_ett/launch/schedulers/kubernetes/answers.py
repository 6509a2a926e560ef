"""What the API server says of an app: its Volcano job and its pods. Pure.

What a pod ended of is told in many places, and which one depends on who ended it:

=========================  ==========================================================
who                        where
=========================  ==========================================================
the container itself       ``containerStatuses``: exit code, ``OOMKilled``
the node's kubelet         ``status.reason``: ``Evicted``, ``DeadlineExceeded``, …
Kubernetes' controllers    condition ``DisruptionTarget``, then the pod goes
Volcano's preemption       condition ``Ready``, reason ``Evict``, then the pod goes
=========================  ==========================================================
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

ROLE_LABEL = "torchx.pytorch.org/role-name"
REPLICA_LABEL = "torchx.pytorch.org/replica-id"
RETRY_ANNOTATION = "volcano.sh/job-retry-count"

_JOB_LABEL = "volcano.sh/job-name"


class Word(NamedTuple):
    """Kubernetes' word for something, and its sentence about it."""

    word: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.text}" if self.text else self.word


@dataclass(frozen=True, slots=True)
class Task:
    """One replica as the job asks for it, and the name that its pod has."""

    role: str
    replica: int
    pod: str


@dataclass(frozen=True, slots=True)
class Job:
    """A Volcano job; ``phase`` is empty until Volcano has looked at it.

    ``retries`` is how often it was started again, ``changed_ns`` since when it has had its phase.
    """

    app: str
    uid: str
    phase: str
    text: str
    retries: int
    changed_ns: int | None
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of an app; what is not known is None, or empty.

    ``waits`` is why it does not run, ``ended`` why it does not any more. ``going_ns`` is when it is
    to be gone, of one that was deleted. ``run`` is how often its job had been started again when it
    was made; None from old releases of Volcano.
    """

    name: str
    app: str
    run: int | None
    phase: str
    node: str | None
    scheduled_ns: int | None
    started_ns: int | None
    finished_ns: int | None
    exit_code: int | None
    signal: int | None
    waits: Word | None
    ended: Word | None
    going_ns: int | None


def read_job(said: Mapping[str, Any]) -> Job:
    """Return a Volcano job."""
    meta, spec, status = said["metadata"], said["spec"], said.get("status") or {}
    state = status.get("state") or {}
    return Job(
        app=meta["name"],
        uid=meta.get("uid", ""),
        phase=state.get("phase", ""),
        text=state.get("message", ""),
        retries=status.get("retryCount", 0),
        changed_ns=_ns(state.get("lastTransitionTime")),
        tasks=tuple(_task(meta["name"], task) for task in spec.get("tasks", ())),
    )


def read_pod(said: Mapping[str, Any]) -> Pod:
    """Return a pod; of its containers the trainer's, which is the first."""
    meta, spec, status = said["metadata"], said.get("spec") or {}, said.get("status") or {}
    container = (spec.get("containers") or [{}])[0].get("name", "")
    statuses = status.get("containerStatuses") or ()
    own: Mapping[str, Any] = next((each for each in statuses if each.get("name") == container), {})
    state = own.get("state") or {}
    ended, runs = state.get("terminated") or {}, state.get("running") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    run = (meta.get("annotations") or {}).get(RETRY_ANNOTATION)
    scheduled = conditions.get("PodScheduled", {})
    placed = scheduled.get("status") == "True"
    return Pod(
        name=meta["name"],
        app=(meta.get("labels") or {}).get(_JOB_LABEL, ""),
        run=None if run is None else _whole(run),
        phase=status.get("phase", ""),
        node=spec.get("nodeName"),
        scheduled_ns=_ns(scheduled.get("lastTransitionTime")) if placed else None,
        started_ns=_ns(ended.get("startedAt") or runs.get("startedAt")),
        finished_ns=_ns(ended.get("finishedAt")),
        exit_code=ended.get("exitCode"),
        signal=ended.get("signal") or None,
        waits=_waits(status, state, scheduled),
        ended=_ended(status, ended, conditions),
        going_ns=_ns(meta.get("deletionTimestamp")),
    )


def read_group(said: Mapping[str, Any] | None) -> Word | None:
    """Return why a pod group waits in its queue; None where nobody says."""
    status = (said or {}).get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Unschedulable" and condition.get("status") == "True":
            return Word(condition.get("reason", "Unschedulable"), condition.get("message", ""))
    return Word("Queued") if status.get("phase") == "Pending" else None


def read_events(said: Iterable[Mapping[str, Any]], since_ns: int = 0) -> Word | None:
    """Return what the newest event says that tells of a pod's end."""
    told = [
        each
        for each in said
        if each.get("reason") in _ENDING_EVENTS and _when(each) >= since_ns
        if not str(each.get("message")).startswith("Cancelling")
    ]
    newest = max(told, key=_when, default=None)
    return Word(newest["reason"], newest.get("message", "")) if newest else None


_ENDING_EVENTS = frozenset({"Evict", "Evicted", "Preempted", "Preempting", "TaintManagerEviction"})


def _when(event: Mapping[str, Any]) -> int:
    times = (event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return next((ns for time in times if (ns := _ns(time)) is not None), 0)


def _task(app: str, task: Mapping[str, Any]) -> Task:
    labels = ((task.get("template") or {}).get("metadata") or {}).get("labels") or {}
    role, _, number = str(task["name"]).rpartition("-")
    return Task(
        role=labels.get(ROLE_LABEL, role),
        replica=_whole(labels.get(REPLICA_LABEL, number)),
        pod=f"{app}-{task['name']}-0",
    )


def _waits(
    status: Mapping[str, Any], state: Mapping[str, Any], scheduled: Mapping[str, Any]
) -> Word | None:
    if status.get("phase") != "Pending":
        return None
    if scheduled.get("status") == "False":
        return Word(scheduled.get("reason", "Unschedulable"), scheduled.get("message", ""))
    before = status.get("initContainerStatuses") or ()
    waiting = [(each.get("state") or {}).get("waiting") for each in before]
    for each in (*waiting, state.get("waiting")):
        if each and each.get("reason") != "PodInitializing":
            return Word(each.get("reason", "Waiting"), each.get("message", ""))
    return Word("PodInitializing") if scheduled.get("status") == "True" else None


def _ended(
    status: Mapping[str, Any], ended: Mapping[str, Any], conditions: Mapping[str, Any]
) -> Word | None:
    """Return what ended a pod, or is about to; None where only its exit code tells."""
    if status.get("reason"):
        word = str(status["reason"])
        return Word(_PLAINER.get(word, word), status.get("message", ""))
    if ended.get("reason") not in (None, "Error", "Completed"):
        return Word(ended["reason"], ended.get("message", ""))
    disrupted, ready = conditions.get("DisruptionTarget", {}), conditions.get("Ready", {})
    if disrupted.get("status") == "True":
        return Word(disrupted.get("reason", ""), disrupted.get("message", ""))
    if ready.get("reason") == "Evict":
        return Word("Evict", ready.get("message", ""))
    return None


_PLAINER = {"Terminated": "NodeShutdown", "Shutdown": "NodeShutdown"}
"""A kubelet's words for what it does before its node goes down."""


def _ns(text: str | None) -> int | None:
    with contextlib.suppress(ValueError, TypeError):
        return time_ns(str(text))
    return None


def time_ns(text: str) -> int:
    """Return a time of Kubernetes in UTC nanoseconds. Raises ``ValueError``.

    The API server writes UTC, a node the times of its containers' lines in its own zone.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time of Kubernetes")
    seconds = int(datetime.fromisoformat(f"{found[1]}{found[3]}").timestamp())
    return seconds * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _whole(text: object) -> int:
    with contextlib.suppress(ValueError, TypeError):
        return int(str(text))
    return 0
