"""Which process of an attempt failed first, by the best witness that there is. Pure.

An agent's reply tells how each rank of its node ended. Without one, the trainer's own ``failure``
event tells which exception it was, and a scheduler of ours how a replica ended.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_ett.events import Event, Kind
from airflow_ett.launch.status import ReplicaStatus

_SIGNALLED = 128
"""A shell's exit code of a command that was killed, less the signal's number."""

_SIGNALS = 64
_LONGEST = 8_000
"""Characters of an exception's message, and of its traceback."""


@dataclass(frozen=True, slots=True)
class Failing:
    """The process that failed first; what nobody told is None.

    ``name`` is what it is called, ``replica`` its rank or the scheduler's number of it, ``node``
    whose output holds its last words. ``error`` is an exception's type, message and traceback.
    ``terminated`` says that its node had got SIGTERM before.
    """

    source: str
    name: str
    replica: int | None = None
    node: int | None = None
    host: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: Mapping[str, Any] | None = None
    terminated: bool = False
    oom_kills: int = 0

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, also where only a shell's exit code tells."""
        code = self.exit_code
        if self.signal is None and code is not None and 0 < code - _SIGNALLED <= _SIGNALS:
            return code - _SIGNALLED
        return self.signal

    @property
    def place(self) -> str:
        """Its name and host, in words."""
        return f"{self.name} on {self.host}" if self.host else self.name

    @property
    def how(self) -> str:
        """How it ended, in words."""
        number = self.killed_by
        if number is None:
            return "exit code unknown" if self.exit_code is None else f"exit code {self.exit_code}"
        with contextlib.suppress(ValueError):
            return f"signal {number} ({signal.Signals(number).name})"
        return f"signal {number}"

    def facts(self) -> dict[str, Any]:
        """Return what evidence tells of it."""
        names = ("replica", "node", "host", "exit_code", "signal")
        told = {name: getattr(self, name) for name in names}
        return told | ({"error": _bounded(self.error)} if self.error else {})


def first_failing(
    replies: Iterable[Mapping[str, Any]],
    events: Sequence[Event],
    replicas: Sequence[ReplicaStatus],
) -> Failing | None:
    """Return the process that failed first, None where none is known to have failed."""
    told = _by_agents(replies)
    if told is not None:
        return told
    told, seen = _by_events(events), _by_scheduler(replicas)
    if told is None or seen is None:
        return told or seen
    code, number = told.exit_code, told.signal
    if code is None and number is None:  # a trainer does not know how its own process will end
        code, number = seen.exit_code, seen.signal
    return replace(
        told,
        node=seen.node if told.node is None else told.node,
        host=told.host or seen.host,
        exit_code=code,
        signal=number,
    )


def _by_agents(replies: Iterable[Mapping[str, Any]]) -> Failing | None:
    failed = [
        (rank.get("end_ns") or 0, rank, reply)
        for reply in replies
        for rank in reply.get("ranks", ())
        if rank.get("exit_code") or rank.get("signal")
    ]
    if not failed:
        return None
    end_ns, rank, reply = min(failed, key=lambda found: found[0])
    error = rank.get("error")
    return Failing(
        source="agent",
        name=f"rank {rank.get('rank')}",
        replica=rank.get("rank"),
        node=reply.get("node"),
        host=reply.get("host"),
        exit_code=rank.get("exit_code"),
        signal=rank.get("signal"),
        error=error if isinstance(error, Mapping) else None,
        terminated=0 < (reply.get("sigterm_received_ns") or 0) <= end_ns,
        oom_kills=reply.get("oom_kills") or 0,
    )


def _by_events(events: Sequence[Event]) -> Failing | None:
    """Return the first failure of a trainer that had not been told to end before."""
    stopped_ns = min((e.time_ns for e in events if e.kind == Kind.SIGNAL), default=None)
    failed = [
        event
        for event in events
        if event.kind == Kind.FAILURE and (stopped_ns is None or event.time_ns < stopped_ns)
    ]
    first = min(failed, key=lambda event: event.time_ns, default=None)
    if first is None:
        return None
    of_writer = (event.data for event in events if event.writer == first.writer)
    process = next((data for data in of_writer if data.get("host")), {})
    names = ("type", "message", "traceback")
    error = {name: first.data[name] for name in names if name in first.data}
    return Failing(
        source="trainer",
        name="the trainer" if first.rank is None else f"rank {first.rank}",
        replica=first.rank,
        node=process.get("node"),
        host=process.get("host"),
        exit_code=first.data.get("exit_code"),
        signal=first.data.get("signal"),
        error=error if error.get("type") else None,
    )


def _by_scheduler(replicas: Sequence[ReplicaStatus]) -> Failing | None:
    """Return a replica that failed by itself: the scheduler cancels the others for it."""
    for node, replica in enumerate(replicas):
        if replica.state != "CANCELLED" and (replica.exit_code or replica.signal):
            return Failing(
                source="scheduler",
                name=f"replica {replica.id}",
                replica=replica.id,
                node=node,
                host=replica.host,
                exit_code=replica.exit_code,
                signal=replica.signal,
            )
    return None


def _bounded(error: Mapping[str, Any]) -> dict[str, str]:
    """Return an exception's parts: the head of its message, the tail of its traceback."""
    parts = {name: str(error.get(name) or "") for name in ("type", "message", "traceback")}
    return {
        name: text[-_LONGEST:] if name == "traceback" else text[:_LONGEST]
        for name, text in parts.items()
    }
