"""Logs of ``goodput_measure`` in Google's ``resiliency`` package: six kinds of events, no steps.

https://github.com/AI-Hypercomputer/resiliency (``goodput_measure/tracker.py``, ``constant.py``).
Training is told by its checkpoints alone: what lies between a load and the saves after it trained,
the saves' own time with it; what never was saved stays unattributed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from airflow_ett.events import Cause, JobState, Kind
from airflow_ett.peers.reading import Entry, Problem, Told, moment, read_entries, whole
from airflow_ett.peers.retelling import Retelling

PEER = "resiliency"
_KNOWN = frozenset({"timestamp", "job_name", "event_type", "node_rank", "step"})


def read_resiliency(lines: Iterable[bytes | str]) -> Iterator[Told]:
    """Yield our events, and what could not be brought over, as the lines come.

    Several jobs may share a log. Times without a zone, as the tracker writes them, are taken for
    UTC. An attempt begins where a user schedules the job, where a node starts a second time, and
    where one starts after all had terminated.
    """
    jobs: dict[str, _Job] = {}
    for entry in read_entries(lines):
        if isinstance(entry, Problem):
            yield entry
            continue
        name = entry.fields.get("job_name")
        if not isinstance(name, str) or not name:
            yield Problem(entry.line, "no job_name; the line was left out")
            continue
        yield from (jobs.get(name) or jobs.setdefault(name, _Job(name))).take(entry)
    for job in jobs.values():
        yield from job.close()


class _Job:
    """Reads the events of one job. ``_alive`` holds the attempt of each node that runs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._out = Retelling(PEER, name)
        self._line = 0
        self._now_ns = 0
        self._waiting = False
        self._stopped = False
        self._started: set[int] = set()
        self._alive: dict[int, int] = {}
        self._trained: tuple[int, int] | None = None

    def take(self, entry: Entry) -> Iterator[Told]:
        """Retell one event."""
        self._line, fields = entry
        time = moment(fields.get("timestamp"))
        if time is None:
            yield self._problem("timestamp is no time; the line was left out")
            return
        if time < self._now_ns:
            yield self._problem("the line is older than one before it")
        self._now_ns = max(time, self._now_ns)
        match fields.get("event_type"):
            case "user_scheduled":
                yield from self._submit(time)
                self._waiting = True
            case "job_started" | "job_terminated" as kind:
                yield from self._node(kind, time, fields.get("node_rank"))
            case "checkpoint_loaded" | "checkpoint_saved" as kind:
                yield from self._checkpoint(kind, time, fields)
            case "user_terminated":
                yield from self._stop(time)
            case kind:
                yield self._problem(f"event_type {kind!r} is unknown; the line was left out")
                return
        if unknown := sorted(fields.keys() - _KNOWN):
            yield self._problem(f"unknown fields were left out: {', '.join(unknown)}")

    def close(self) -> Iterator[Told]:
        """Tell how the job ends: the log tells a user's stop, but no success from a failure."""
        if self._stopped:
            state, cause = JobState.CANCELLED.value, Cause.USER_CANCELLED.value
            yield from self._out.end(self._now_ns, state, cause)
        elif self._out.attempt:
            yield self._problem(f"how job {self._name} ended is not told: it stays provisional")

    def _problem(self, text: str) -> Problem:
        return Problem(self._line, text)

    def _submit(self, time: int) -> Iterator[Told]:
        if self._stopped:
            yield self._out.event(Kind.ATTEMPT_ENDED, time, {"cause": Cause.USER_RESTART.value})
        self._stopped, self._trained = False, None
        self._started.clear()
        yield from self._out.submit(time)

    def _node(self, kind: str, time: int, rank: object) -> Iterator[Told]:
        node = 0 if rank is None else whole(rank)
        if node is None:
            yield self._problem("node_rank is no whole number; the line was left out")
        elif kind == "job_started":
            yield from self._start(time, node)
        else:
            yield from self._terminate(time, node)

    def _start(self, time: int, node: int) -> Iterator[Told]:
        running = self._out.attempt in self._alive.values()
        if node in self._started or not (running or self._waiting):
            yield from self._submit(time)
        if not self._started:
            yield self._out.session(time)
        self._waiting = False
        self._started.add(node)
        self._alive[node] = self._out.attempt
        yield self._out.event(Kind.PROCESS_STARTED, time, {"role": "agent", "node": node})

    def _terminate(self, time: int, node: int) -> Iterator[Told]:
        attempt = self._alive.pop(node, None)
        if attempt is None:
            yield self._problem("a node terminated that had not started; the line was left out")
            return
        data = {"role": "agent", "node": node}
        yield self._out.event(Kind.PROCESS_ENDED, time, data, attempt=attempt)

    def _stop(self, time: int) -> Iterator[Told]:
        if not self._out.attempt:
            yield self._problem("a stop before any start; the line was left out")
            return
        self._stopped = True
        data = {"submission": self._out.attempt, "reason": Cause.USER_CANCELLED.value}
        yield self._out.event(Kind.CANCEL_REQUESTED, time, data, attempt=0)

    def _checkpoint(self, kind: str, time: int, fields: dict[str, Any]) -> Iterator[Told]:
        step = whole(fields.get("step"))
        if step is None:
            yield self._problem(f"{kind} names no step; the line was left out")
            return
        if not self._started:
            yield self._problem(f"{kind} before any job_started: an attempt begins here")
            yield from self._start(time, 0)
        if kind == "checkpoint_loaded":
            uri = f"step={step}" if step else None
            yield self._out.event(
                Kind.RESUMED, time, {"checkpoint": uri, "cursor": step, "hwm": step}, rank=0
            )
        else:
            yield from self._save(time, step)
        self._trained = (time, step)

    def _save(self, time: int, step: int) -> Iterator[Told]:
        """What lies between the load or the save before and this save trained."""
        if self._trained is None:
            yield self._problem("a save without a load before it: training before it is not told")
        elif step < self._trained[1] or time < self._trained[0]:
            yield self._problem("a save lies before the one before it: its training is not told")
        elif step > self._trained[1]:
            yield self._out.interval(self._trained[0], time, (self._trained[1], step))
        data = {"checkpoint": f"step={step}", "cursor": step}
        yield self._out.event(Kind.CHECKPOINT_COMMITTED, time, data, rank=0)
