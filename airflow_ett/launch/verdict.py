"""Why an attempt ended: a pure function from what was seen to a cause with its evidence.

The first row that applies wins.

1. the scheduler reports success           -> success
2. a cancel that we requested              -> its reason
3. the scheduler's raw state               -> preempted, timeout, out_of_memory, infrastructure
   it was cancelled, but not by us         -> user_cancelled
4. the process that failed first           -> application, out_of_memory, preempted, infrastructure
5. the trainer's own last event            -> success if forgotten, preempted, application
6. nothing                                 -> vanished, or unknown

Which process failed first, and how, is part of the evidence whichever row decides. Success needs
the scheduler's word or, where the scheduler has forgotten the app, the trainer's.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import Cause, Event, Kind
from airflow_ett.launch.failing import Failing
from airflow_ett.launch.status import ReplicaStatus
from airflow_ett.launch.witnesses import first_failing

_KUBERNETES = {
    Cause.OUT_OF_MEMORY: "OOMKilled",
    Cause.TIMEOUT: "DeadlineExceeded",
    Cause.LAUNCH: "StartError ContainerCannotRun",
    Cause.PREEMPTED: "Evict Evicted EvictionByEvictionAPI Preempted Preempting "
    "PreemptionByScheduler PreemptionByKubeScheduler TerminationByKubelet",
    Cause.INFRASTRUCTURE: "NodeLost NodeShutdown NodeAffinity DeletionByTaintManager "
    "DeletionByPodGC TaintManagerEviction UnexpectedAdmissionError ContainerStatusUnknown",
}

RAW_CAUSES: Mapping[str, Cause] = {
    "PREEMPTED": Cause.PREEMPTED,
    "TIMEOUT": Cause.TIMEOUT,
    "DEADLINE": Cause.TIMEOUT,
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "NODE_FAIL": Cause.INFRASTRUCTURE,
    "BOOT_FAIL": Cause.INFRASTRUCTURE,
    "LAUNCH_FAILED": Cause.INFRASTRUCTURE,
    "supervisor_lost": Cause.INFRASTRUCTURE,
    **{word: cause for cause, words in _KUBERNETES.items() for word in words.split()},
}
"""Schedulers' raw end states that name the cause by themselves."""

_LIKELY: Mapping[str, Cause] = {"PodEvicted": Cause.PREEMPTED}
"""Raw words that name the cause where nothing else does."""

_MEMORY_ERRORS = ("OutOfMemoryError", "MemoryError")

_LONGEST = 600


@dataclass(frozen=True, slots=True)
class Verdict:
    """``cause`` is None on success; ``evidence`` is JSON and its ``text`` a sentence for people."""

    cause: Cause | None
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen of an attempt that is over; ``state`` None: unknown to the scheduler.

    ``answered`` is False where the scheduler has not even said that, for so long as it was asked.
    ``cancel_text`` says in a sentence why it was cancelled, where there is more to say. ``hosts``
    are the scheduler's names of its nodes, in order.
    """

    state: str | None
    raw: str | None
    message: str = ""
    cancel_reason: Cause | None = None
    cancel_text: str | None = None
    replies: Sequence[Mapping[str, Any]] = ()
    replicas: Sequence[ReplicaStatus] = ()
    hosts: Sequence[str | None] = ()
    events: Sequence[Event] = ()
    answered: bool = True


def judge(seen: Sighting) -> Verdict:
    """Return the cause of the attempt's end and the evidence for it."""
    if seen.state == "SUCCEEDED":
        return Verdict(None, {"source": "scheduler", "text": "The scheduler reports success."})
    told = [] if _outcome(seen.events) == "success" else seen.events
    by_word = RAW_CAUSES.get(seen.raw or "")
    failing = first_failing(
        seen.replies,
        told,
        seen.replicas,
        seen.hosts,
        node_lost=by_word is Cause.INFRASTRUCTURE,
    )
    facts = failing.facts() if failing else {}
    if failing is None and by_word is Cause.INFRASTRUCTURE:
        facts = _lost(seen.replicas)
    if seen.cancel_reason is not None:
        text = seen.cancel_text or f"Cancelled on request: {seen.cancel_reason}."
        return Verdict(seen.cancel_reason, {**facts, "source": "launcher", "text": text})
    if by_word is not None:
        place = f" on {facts['host']}" if failing is None and facts else ""
        said = seen.message.partition(f"{seen.raw}: ")[2].rstrip(". ")
        text = shortened(f"The scheduler reports {seen.raw}{place}{said and f': {said}'}.")
        if failing is not None:
            text = f"{text} {failing.place} failed first, {failing.how}."
        evidence = {**facts, "source": "scheduler", "text": text, "raw": seen.raw}
        return Verdict(by_word, evidence)
    if seen.state == "CANCELLED":
        text = shortened(f"It was cancelled at the scheduler, not from here. {seen.message}")
        evidence = {**facts, "source": "scheduler", "text": text, "raw": seen.raw}
        return Verdict(Cause.USER_CANCELLED, evidence)
    if failing is not None:
        cause, text = _by_process(failing)
        return Verdict(cause, {**facts, "source": failing.source, "text": text})
    return _by_outcome(seen)


def _lost(replicas: Sequence[ReplicaStatus]) -> dict[str, Any]:
    """Return which node was lost, where that was one alone by the scheduler's word."""
    failed = [(node, r) for node, r in enumerate(replicas) if r.state == "FAILED" and r.host]
    if len(failed) != 1:
        return {}
    ((node, replica),) = failed
    return {"replica": replica.id, "node": node, "host": replica.host}


def _by_process(failing: Failing) -> tuple[Cause, str]:
    """Return the cause that a process's end speaks for, and a sentence about it."""
    where, number, error = failing.place, failing.killed_by, failing.error
    if failing.silent:
        return Cause.INFRASTRUCTURE, f"{where} ended without a word, and the others for that."
    if failing.terminated:
        return Cause.PREEMPTED, f"{where} ended after SIGTERM, which nobody here requested."
    if error is not None:
        kind = str(error.get("type"))
        memory = any(name in kind for name in _MEMORY_ERRORS)
        message = f": {error['message']}" if error.get("message") else ""
        text = shortened(f"{where} raised {kind}{message}")
        return Cause.OUT_OF_MEMORY if memory else Cause.APPLICATION, text
    if number == signals.SIGTERM:
        return Cause.PREEMPTED, f"{where} was ended by SIGTERM, which nobody here requested."
    if failing.oom_kills:
        return Cause.OUT_OF_MEMORY, f"{where} was killed while its cgroup ran out of memory."
    if number is not None:
        text = f"{where} was killed by {failing.how}."
        return Cause.APPLICATION if number in _CRASHES else Cause.INFRASTRUCTURE, text
    if failing.exit_code is None:
        return Cause.APPLICATION, f"{where} reported an error and ended."
    return Cause.APPLICATION, f"{where} exited with code {failing.exit_code}."


_CRASHES = frozenset({signals.SIGSEGV, signals.SIGABRT, signals.SIGFPE, signals.SIGILL})


def _by_outcome(seen: Sighting) -> Verdict:
    outcome = _outcome(seen.events)
    if outcome == "success" and seen.state is None:
        silent = "has forgotten the app" if seen.answered else "did not tell of the app"
        text = f"The scheduler {silent}; the trainer itself reported success."
        return Verdict(None, {"source": "trainer", "text": text})
    if outcome == "preempted":
        text = "The trainer was told to stop by SIGTERM."
        return Verdict(Cause.PREEMPTED, {"source": "trainer", "text": text})
    if outcome == "error":
        text = "The trainer reported an error and ended."
        return Verdict(Cause.APPLICATION, {"source": "trainer", "text": text})
    if seen.state is None:
        silent = "no longer knows" if seen.answered else "did not tell what became of"
        text = f"The scheduler {silent} the app, and the trainer did not report its end. "
        if seen.answered or seen.message:
            text += seen.message or "Slurm, for one, forgets what is over where accounting is off."
        return Verdict(Cause.VANISHED, {"source": "scheduler", "text": text})
    if seen.raw == "REQUEUED":
        text = "The scheduler has queued it again, and none of its processes told of an end."
        evidence = {"source": "scheduler", "text": text, "raw": seen.raw}
        return Verdict(Cause.INFRASTRUCTURE, evidence)
    text = f"The scheduler reports {seen.raw or seen.state}. {seen.message}".strip()
    cause = _LIKELY.get(seen.raw or "", Cause.UNKNOWN)
    return Verdict(cause, {"source": "scheduler", "text": text, "raw": seen.raw})


def _outcome(events: Iterable[Event]) -> str | None:
    """Return how the newest Session ended, None while it has not."""
    edges = [e for e in events if e.kind in (Kind.SESSION_STARTED, Kind.SESSION_ENDED)]
    last = max(edges, key=lambda event: event.time_ns, default=None)
    if last is None or last.kind == Kind.SESSION_STARTED:
        return None
    return str(last.data.get("outcome"))


def shortened(text: str) -> str:
    """Return a text for a sentence: on one line, and not a page long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
