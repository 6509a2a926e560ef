"""On which hosts an attempt ran, and which of its ranks where."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_ett.events import Event, Kind
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import text, whole


class Nodes:
    """The nodes of an attempt, as far as anybody told.

    The scheduler's name of a host goes before what the host calls itself: by it, people find the
    host again. ``hosts`` are those of the nodes, in order; None is told of no other place.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._hosts: dict[int, str] = {}
        self._nodes: dict[int, int] = {}
        started = evidence.of(Kind.PROCESS_STARTED)
        writers = {event.writer: _node(event) for event in started}
        for event in started:
            if host := text(event.data, "host"):
                self._hosts.setdefault(_node(event), host)
        for event in (*started, *evidence.of(Kind.PROCESS_ENDED)):
            if event.rank is not None and event.writer in writers:
                self._nodes.setdefault(event.rank, writers[event.writer])
        for event in evidence.of(Kind.SCHEDULER_STATE):
            self._hosts |= _told(event.data)
        self.hosts = tuple(self._hosts[node] for node in sorted(self._hosts))

    def host_of(self, rank: int) -> str | None:
        """Return on which host a rank ran, None where nobody told."""
        return self._hosts.get(self._nodes.get(rank, -1))


def _node(event: Event) -> int:
    """Return the number of a process's node; who does not tell it has but one."""
    return whole(event.data, "node") or 0


def _told(state: Mapping[str, object]) -> dict[int, str]:
    """Return the scheduler's names of the hosts, by node."""
    names = state.get("hosts")
    if not isinstance(names, list):
        return {}
    return {node: name for node, name in enumerate(names) if isinstance(name, str) and name}
