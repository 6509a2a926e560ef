"""Why an attempt ended: a pure function from what was seen to a cause with its evidence.

The first row that applies wins.

1. the scheduler reports success           -> success
2. a cancel that we requested              -> its reason
3. the scheduler's raw state               -> preempted, timeout, out_of_memory, infrastructure
4. the earliest rank that failed           -> application, out_of_memory, preempted, infrastructure
5. a replica that failed without a reply   -> application, preempted, infrastructure
6. the trainer's own last event            -> success if forgotten, preempted, application
7. nothing                                 -> vanished, or unknown

Success needs the scheduler's word or, where the scheduler has forgotten the app, the trainer's.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import Cause, Event, Kind
from airflow_ett.launch.status import ReplicaStatus

RAW_CAUSES: Mapping[str, Cause] = {
    "PREEMPTED": Cause.PREEMPTED,
    "TIMEOUT": Cause.TIMEOUT,
    "DEADLINE": Cause.TIMEOUT,
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "NODE_FAIL": Cause.INFRASTRUCTURE,
    "BOOT_FAIL": Cause.INFRASTRUCTURE,
    "supervisor_lost": Cause.INFRASTRUCTURE,
}
"""Schedulers' raw end states that name the cause by themselves."""

_MEMORY_ERRORS = ("OutOfMemoryError", "MemoryError")
_SIGNALLED = 128
"""A shell's exit code of a command that was killed, less the signal's number."""

_PREEMPTED_EXIT = _SIGNALLED + signals.SIGTERM


@dataclass(frozen=True, slots=True)
class Verdict:
    """``cause`` is None on success; ``evidence`` is JSON and its ``text`` a sentence for people."""

    cause: Cause | None
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen of an attempt that is over; ``state`` None: unknown to the scheduler.

    ``cancel_text`` says in a sentence why it was cancelled, where there is more to say.
    """

    state: str | None
    raw: str | None
    message: str = ""
    cancel_reason: Cause | None = None
    cancel_text: str | None = None
    replies: Sequence[Mapping[str, Any]] = ()
    replicas: Sequence[ReplicaStatus] = ()
    events: Sequence[Event] = ()


def judge(seen: Sighting) -> Verdict:
    """Return the cause of the attempt's end and the evidence for it."""
    outcome = _outcome(seen.events)
    if seen.state == "SUCCEEDED":
        return Verdict(None, {"source": "scheduler", "text": "The scheduler reports success."})
    if seen.cancel_reason is not None:
        text = seen.cancel_text or f"Cancelled on request: {seen.cancel_reason}."
        return Verdict(seen.cancel_reason, {"source": "launcher", "text": text})
    if seen.raw is not None and seen.raw in RAW_CAUSES:
        text = f"The scheduler reports {seen.raw}."
        return Verdict(RAW_CAUSES[seen.raw], {"source": "scheduler", "text": text, "raw": seen.raw})
    failure = first_failure(seen.replies)
    if failure is not None:
        return _by_process(failure, f"rank {failure.get('rank')} on {failure.get('host')}", "agent")
    lost = _failed_replica(seen.replicas)
    if lost is not None:
        return _by_process(lost, f"replica {lost['rank']} on {lost['host']}", "scheduler")
    return _by_outcome(outcome, seen)


def first_failure(replies: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that failed first of all nodes, with its node's host, signs and oom kills."""
    failures = [
        {**rank, **{name: reply.get(name) for name in ("node", "host", "oom_kills")}}
        | {"sigterm_ns": reply.get("sigterm_received_ns")}
        for reply in replies
        for rank in reply.get("ranks", ())
        if rank.get("exit_code") or rank.get("signal")
    ]
    return min(failures, key=lambda rank: rank.get("end_ns") or 0, default=None)


def _failed_replica(replicas: Iterable[ReplicaStatus]) -> dict[str, Any] | None:
    """Return a replica that failed without a word of its agent, in the form of a rank."""
    for replica in replicas:
        code, number = replica.exit_code, replica.signal
        if code is not None and code > _SIGNALLED:
            number, code = code - _SIGNALLED, None
        if code or number:
            return {"rank": replica.id, "host": replica.host, "exit_code": code, "signal": number}
    return None


def _by_process(failure: Mapping[str, Any], where: str, source: str) -> Verdict:
    number, code, error = failure.get("signal"), failure.get("exit_code"), failure.get("error")
    evidence: dict[str, Any] = {
        "source": source,
        "replica": failure.get("rank"),
        "host": failure.get("host"),
        "exit_code": code,
        "signal": number,
    }
    if 0 < (failure.get("sigterm_ns") or 0) <= (failure.get("end_ns") or 0):
        text = f"{where} ended after its node got SIGTERM, which nobody here requested."
        return Verdict(Cause.PREEMPTED, {**evidence, "text": text})
    if error:
        summary = f"{error.get('type')}: {error.get('message')}"
        memory = any(name in str(error.get("type")) for name in _MEMORY_ERRORS)
        cause = Cause.OUT_OF_MEMORY if memory else Cause.APPLICATION
        return Verdict(
            cause, {**evidence, "error": dict(error), "text": f"{where} raised {summary}"}
        )
    if code == _PREEMPTED_EXIT or number == signals.SIGTERM:
        text = f"{where} was ended by SIGTERM, which nobody here requested."
        return Verdict(Cause.PREEMPTED, {**evidence, "text": text})
    if failure.get("oom_kills"):
        text = f"{where} was killed while its cgroup ran out of memory."
        return Verdict(Cause.OUT_OF_MEMORY, {**evidence, "text": text})
    if number:
        text = f"{where} was killed by signal {number} ({_signal_name(number)})."
        cause = Cause.APPLICATION if number in _CRASHES else Cause.INFRASTRUCTURE
        return Verdict(cause, {**evidence, "text": text})
    return Verdict(Cause.APPLICATION, {**evidence, "text": f"{where} exited with code {code}."})


_CRASHES = frozenset({signals.SIGSEGV, signals.SIGABRT, signals.SIGFPE, signals.SIGILL})


def _by_outcome(outcome: str | None, seen: Sighting) -> Verdict:
    if outcome == "success" and seen.state is None:
        text = "The scheduler has forgotten the app; the trainer itself reported success."
        return Verdict(None, {"source": "trainer", "text": text})
    if outcome == "preempted":
        text = "The trainer was told to stop by SIGTERM."
        return Verdict(Cause.PREEMPTED, {"source": "trainer", "text": text})
    if outcome == "error":
        text = "The trainer reported an error and ended."
        return Verdict(Cause.APPLICATION, {"source": "trainer", "text": text})
    if seen.state is None:
        text = "The scheduler no longer knows the app, and the trainer did not report its end."
        return Verdict(Cause.VANISHED, {"source": "scheduler", "text": text})
    text = f"The scheduler reports {seen.raw or seen.state}. {seen.message}".strip()
    cause = Cause.USER_CANCELLED if seen.state == "CANCELLED" else Cause.UNKNOWN
    return Verdict(cause, {"source": "scheduler", "text": text, "raw": seen.raw})


def _outcome(events: Iterable[Event]) -> str | None:
    """Return how the newest Session ended, None while it has not."""
    edges = [e for e in events if e.kind in (Kind.SESSION_STARTED, Kind.SESSION_ENDED)]
    last = max(edges, key=lambda event: event.time_ns, default=None)
    if last is None or last.kind == Kind.SESSION_STARTED:
        return None
    return str(last.data.get("outcome"))


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return "unknown"
