"""What a Volcano job and its pods mean in the words that every scheduler shares. Pure.

``raw`` is the phase of the job, or the word for what ended a pod, which tells more. A job of which
a pod lives is not over, whatever its phase: its trainers may still be saving.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_ett.launch.schedulers.kubernetes.answers import Job, Pod, Task, Word
from airflow_ett.launch.status import TERMINAL_STATES, ReplicaStatus, SchedulerStatus

_STATES = {
    "": "SUBMITTED",
    "Pending": "PENDING",
    "Inqueue": "PENDING",
    "Restarting": "PENDING",
    "Running": "RUNNING",
    "Completing": "RUNNING",
    "Aborting": "RUNNING",
    "Terminating": "RUNNING",
    "Completed": "SUCCEEDED",
    "Aborted": "CANCELLED",
    "Terminated": "FAILED",
    "Failed": "FAILED",
}

_ENDING = {"Aborting": "CANCELLED", "Terminating": "FAILED", "Completing": "SUCCEEDED"}

_PODS = {"Succeeded": "SUCCEEDED", "Failed": "FAILED", "Running": "RUNNING", "Pending": "PENDING"}

OVER = ("Succeeded", "Failed")

_LOST_NS = 60 * 1_000_000_000
"""So long after its time a pod that is to be gone, and is not, is on a node that nobody reaches."""

_UNSTARTABLE = frozenset({"InvalidImageName", "ErrImageNeverPull", "ErrImagePull",
                          "ImagePullBackOff", "CreateContainerConfigError", "CreateContainerError",
                          "RunContainerError"})  # fmt: skip

_UNSTARTABLE_NS = 600 * 1_000_000_000
"""For so long a registry may be away, or a Secret be missing, before a pod that waits for it is
given up: it holds its node's GPUs meanwhile."""

_COUNT = re.compile(r"\b\d+(/\d+)? ")
"""Numbers in a reason, which change with every look of the scheduler's."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is known of an app: its job, and the pods of its newest run by their names.

    Those that are not in ``there`` any more are as they were seen last. ``queued`` is why the whole
    waits; ``gone`` is what is known of the end of pods that nobody saw end, ``former`` of the run
    before.
    """

    job: Job
    pods: Mapping[str, Pod] = field(default_factory=dict)
    there: frozenset[str] = frozenset()
    queued: Word | None = None
    gone: Word | None = None
    former: Word | None = None

    @property
    def alive(self) -> list[Pod]:
        """The pods that have not ended."""
        pods = (self.pods[name] for name in sorted(self.there) if name in self.pods)
        return [pod for pod in pods if pod.phase not in OVER]

    @property
    def over(self) -> bool:
        """Whether the app has ended, for good."""
        return state_of(self.job) in TERMINAL_STATES and not self.alive


def state_of(job: Job) -> str:
    """Return TorchX's name of the job's state."""
    return _STATES.get(job.phase, "UNKNOWN")


def ended_by(pods: Sequence[Pod]) -> Word | None:
    """Return what ended the first pod of which anybody tells."""
    told = [pod for pod in pods if pod.ended is not None]
    return min(told, key=_ended_ns).ended if told else None


def status_of(seen: Seen, now_ns: int) -> SchedulerStatus:
    """Return what is known of an app."""
    job = seen.job
    pods = [seen.pods.get(task.pod) for task in job.tasks]
    known = [pod for pod in pods if pod is not None]
    lost = [pod for pod in seen.alive if _unreachable(pod, now_ns)]
    state = _state(job, len(seen.alive) - len(lost), bool(lost))
    word = None if state in ("SUCCEEDED", "CANCELLED") else ended_by(known) or seen.gone
    if word is None and state == "FAILED":
        word = _taken(job, pods, lost, seen.there)
    waits = _why(job, seen.alive, seen.queued) if state in ("SUBMITTED", "PENDING") else None
    hopeless = _hopeless(seen.alive, now_ns) if waits else None
    by_itself = any(pod.phase == "Failed" and pod.going_ns is None for pod in known)
    return SchedulerStatus(
        state=state,
        raw=(word or hopeless or Word(job.phase)).word,
        restart=job.retries,
        allocated_ns=_latest([pod.scheduled_ns for pod in pods if pod]) if all(pods) else None,
        started_ns=min((p.started_ns for p in known if p.started_ns), default=None),
        ended_ns=_end(job, pods) if state in TERMINAL_STATES else None,
        replicas=tuple(
            _replica(task, pod, state, lost[0] if lost else None, by_itself=by_itself)
            for task, pod in zip(job.tasks, pods, strict=True)
        ),
        message=_message(job, word or waits),
        reason=_COUNT.sub("", str(waits))[:300] if waits else "",
        former=seen.former.word if seen.former else "",
        hopeless=hopeless is not None,
    )


def _taken(
    job: Job, pods: Sequence[Pod | None], lost: Sequence[Pod], there: frozenset[str]
) -> Word | None:
    """Return what is to be said of an app whose pods were not ended by themselves, as it seems."""
    if lost:
        return Word("NodeLost", f"its node {lost[0].node} does not answer")
    if any(pod is not None and pod.exit_code for pod in pods):
        return None
    gone = [task.pod for task in job.tasks if task.pod not in there]
    return Word("PodEvicted", f"pod {gone[0]} is gone, and nobody says why") if gone else None


def _state(job: Job, alive: int, lost: bool) -> str:
    """Return the state of an app of which so many pods live that can be reached."""
    state = _ENDING.get(job.phase, state_of(job)) if lost and not alive else state_of(job)
    return "RUNNING" if alive and state in (*TERMINAL_STATES, "UNKNOWN") else state


def _unreachable(pod: Pod, now_ns: int) -> bool:
    return pod.going_ns is not None and now_ns - pod.going_ns >= _LOST_NS


def _why(job: Job, pods: Sequence[Pod], queued: Word | None) -> Word | None:
    """Return why an app does not run: what a pod waits for, the worst first, or what all do."""
    waits = [pod.waits for pod in pods if pod.waits is not None]
    if not waits:
        return queued or (Word(job.phase) if job.phase else None)
    return max(waits, key=lambda word: (word.word in _UNSTARTABLE, word.word == "Unschedulable"))


def _hopeless(pods: Sequence[Pod], now_ns: int) -> Word | None:
    """Return what a pod has waited for in vain for too long."""
    waits = (pod for pod in pods if pod.waits and pod.waits.word in _UNSTARTABLE)
    late = (pod for pod in waits if now_ns - (pod.scheduled_ns or now_ns) >= _UNSTARTABLE_NS)
    return next((pod.waits for pod in late), None)


def _replica(
    task: Task, pod: Pod | None, state: str, lost: Pod | None, *, by_itself: bool
) -> ReplicaStatus:
    """Return how one replica is; ``by_itself``: a pod has failed for which Volcano ends others."""
    if pod is None:
        return ReplicaStatus(task.role, task.replica)
    own = _PODS.get(pod.phase, "UNKNOWN")
    if own == "FAILED" and by_itself and pod.going_ns is not None and pod.ended is None:
        own = "CANCELLED"
    if own in ("RUNNING", "PENDING") and state in TERMINAL_STATES:
        own = "FAILED" if pod is lost or pod.ended else "CANCELLED"
    return ReplicaStatus(task.role, task.replica, own, pod.exit_code, pod.signal, pod.node)


def _message(job: Job, word: Word | None) -> str:
    place = f"Volcano job {job.app}"
    told = str(word) if word else job.text
    return f"{place}: {told}" if told else place


def _end(job: Job, pods: Sequence[Pod | None]) -> int | None:
    """Return when the last pod ended, or else when Volcano said so."""
    ends = [pod.finished_ns if pod else None for pod in pods]
    return job.changed_ns if None in ends or not ends else max(ns for ns in ends if ns)


def _ended_ns(pod: Pod) -> int:
    return pod.finished_ns or pod.going_ns or 0


def _latest(times: Sequence[int | None]) -> int | None:
    return max((ns for ns in times if ns is not None), default=None) if None not in times else None
