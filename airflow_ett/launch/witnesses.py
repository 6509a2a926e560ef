"""Which process of an attempt failed first, by the best witness that there is. Pure.

An agent's reply tells how each rank of its node ended. Without one, the trainer's own ``failure``
event tells which exception it was, and a scheduler of ours how a replica ended.

What a rank suffers for another one's end goes behind all else, whatever the nodes' clocks say: an
error about a peer that has gone (:mod:`airflow_ett.launch.complaints`), and a stop for a peer's
failure. Where nothing else is told, the node failed first of which nobody has heard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from signal import SIGTERM
from typing import Any

from airflow_ett.events import Event, Kind
from airflow_ett.launch.complaints import is_complaint
from airflow_ett.launch.failing import Failing
from airflow_ett.launch.status import ReplicaStatus


def first_failing(
    replies: Sequence[Mapping[str, Any]],
    events: Sequence[Event],
    replicas: Sequence[ReplicaStatus],
    hosts: Sequence[str | None] = (),
    *,
    node_lost: bool = False,
) -> Failing | None:
    """Return the process that failed first, None where none is known to have failed.

    ``hosts`` are the scheduler's names of the nodes, which go before what nodes call themselves.
    ``node_lost``: it says that one of them was lost.
    """
    nodes = max(len(hosts), len(replicas))
    lost = _silent(replies, events, nodes) if node_lost else None
    found = lost or _first(replies, events, replicas, nodes)
    if found is None or found.node is None or found.node >= len(hosts):
        return found
    return replace(found, host=hosts[found.node] or found.host)


def _first(
    replies: Sequence[Mapping[str, Any]],
    events: Sequence[Event],
    replicas: Sequence[ReplicaStatus],
    nodes: int,
) -> Failing | None:
    told = sorted(_by_agents(replies, events), key=lambda end: (end.suffered, end.time_ns))
    if told and told[0].suffered is _Suffered.NOTHING:
        return told[0].failing
    found = _by_others(*_unheard(told, replies, events, replicas))
    if found is None and any(is_complaint(end.failing.error) for end in told):
        found = _silent(replies, events, nodes)
    return found or (told[0].failing if told else None)


def _unheard(
    told: Sequence[_End],
    replies: Sequence[Mapping[str, Any]],
    events: Sequence[Event],
    replicas: Sequence[ReplicaStatus],
) -> tuple[Sequence[Event], Mapping[int, ReplicaStatus]]:
    """Return what is known of the ranks and nodes whose failure no agent has ``told``."""
    if not told:
        return events, dict(enumerate(replicas))
    ranks = {end.failing.replica for end in told}
    heard = {reply.get("node") for reply in replies}
    return (
        [event for event in events if event.rank not in ranks and not is_complaint(event.data)],
        {node: replica for node, replica in enumerate(replicas) if node not in heard},
    )


class _Suffered(IntEnum):
    """What a rank had of another one's end before its own; the less, the likelier it was first."""

    NOTHING = 0
    STOP_AND_OWN_ERROR = 1
    LOSS_OF_A_PEER = 2
    STOP = 3


@dataclass(frozen=True, slots=True)
class _End:
    """How a rank ended, by its agent's word."""

    suffered: _Suffered
    time_ns: int
    failing: Failing


def _by_agents(replies: Sequence[Mapping[str, Any]], events: Sequence[Event]) -> Iterator[_End]:
    for reply in replies:
        stopped_ns = reply.get("sigterm_received_ns") or 0
        for rank in reply.get("ranks", ()):
            if not (rank.get("exit_code") or rank.get("signal")):
                continue
            error = rank.get("error")
            failing = Failing(
                source="agent",
                name=f"rank {rank.get('rank')}",
                replica=rank.get("rank"),
                node=reply.get("node"),
                host=reply.get("host"),
                exit_code=rank.get("exit_code"),
                signal=rank.get("signal"),
                error=error if isinstance(error, Mapping) else None,
                oom_kills=reply.get("oom_kills") or 0,
            )
            time_ns = _failed_ns(failing, rank.get("end_ns") or 0, events)
            terminated = 0 < stopped_ns <= time_ns
            for_peer = terminated and bool(reply.get("peer_failed"))
            for_peer = for_peer or _stopped_by_agent(failing, reply)
            yield _End(
                _suffered(failing, for_peer=for_peer),
                time_ns,
                replace(failing, terminated=terminated and not for_peer),
            )


def _stopped_by_agent(failing: Failing, reply: Mapping[str, Any]) -> bool:
    """Tell whether a rank got SIGTERM from its own agent, since another one of its node failed.

    Where the agent had got SIGTERM before, it passed that on.
    """
    first, stopped_ns = reply.get("first_failure_rank"), reply.get("sigterm_received_ns")
    if first in (None, failing.replica) or failing.killed_by != SIGTERM:
        return False
    ends = (rank.get("end_ns") or 0 for rank in reply.get("ranks", ()) if rank.get("rank") == first)
    return not stopped_ns or next(ends, stopped_ns) < stopped_ns


def _suffered(failing: Failing, *, for_peer: bool) -> _Suffered:
    complains = is_complaint(failing.error)
    if for_peer:
        own = failing.error is not None and not complains
        return _Suffered.STOP_AND_OWN_ERROR if own else _Suffered.STOP
    return _Suffered.LOSS_OF_A_PEER if complains else _Suffered.NOTHING


def _failed_ns(failing: Failing, end_ns: int, events: Sequence[Event]) -> int:
    """Return when a rank failed: its process may have ended long after the error that it told."""
    if failing.error is None:
        return end_ns
    told = (
        event.time_ns
        for event in events
        if event.kind == Kind.FAILURE and event.rank == failing.replica
        if event.data.get("type") == failing.error.get("type") and event.time_ns < end_ns
    )
    return max(told, default=end_ns)


def _by_others(events: Sequence[Event], replicas: Mapping[int, ReplicaStatus]) -> Failing | None:
    """Return who failed first by the trainers' and the scheduler's word."""
    told = _by_events(events)
    node = told.node if told else None
    if node is not None and node in replicas:
        replicas = {node: replicas[node]}
    seen = _by_scheduler(replicas)
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


def _silent(
    replies: Sequence[Mapping[str, Any]], events: Sequence[Event], nodes: int
) -> Failing | None:
    """Return the first node of which no agent told how it ended, while others' agents did.

    The only one is that node anyway.
    """
    started = {
        node: event.data.get("host")
        for event in events
        if event.kind == Kind.PROCESS_STARTED and isinstance(node := event.data.get("node"), int)
    }
    heard = {reply.get("node") for reply in replies}
    missing = sorted({*range(nodes), *started} - heard)
    if not missing or not (heard or nodes == 1):
        return None
    first, *others = missing
    if others:  # no host is blamed, and so avoided, for what another one may have begun
        return Failing("agent", f"node {first} and {len(others)} more", silent=True)
    return Failing("agent", f"node {first}", node=first, host=started.get(first), silent=True)


def _by_events(events: Sequence[Event]) -> Failing | None:
    """Return the first failure of a trainer that had not been told to end before.

    One that speaks of a peer comes last.
    """
    stopped_ns = min((e.time_ns for e in events if e.kind == Kind.SIGNAL), default=None)
    failed = [
        event
        for event in events
        if event.kind == Kind.FAILURE and (stopped_ns is None or event.time_ns < stopped_ns)
    ]
    first = min(failed, key=lambda e: (is_complaint(e.data), e.time_ns), default=None)
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


def _by_scheduler(replicas: Mapping[int, ReplicaStatus]) -> Failing | None:
    """Return a replica that failed by itself: the scheduler cancels the others for it."""
    for node, replica in replicas.items():
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
