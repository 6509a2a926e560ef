"""Logs of Google's ``ml-goodput-measurement`` 0.2.3: what its recorders write, line by line.

https://github.com/AI-Hypercomputer/ml-goodput-measurement (``goodput.py``, ``goodput_elastic.py``,
and Orbax's saves and restores as ``checkpoint_badput_calculator.py`` reads them). A step is told by
its start alone and lasts until the next one's. An attempt begins at each ``job_start_time``; a step
number that repeats begins none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from airflow_ett.events import Event
from airflow_ett.peers.reading import (
    Entry,
    Problem,
    Told,
    duration,
    moment,
    read_entries,
    whole,
)
from airflow_ett.peers.steps import MAIN, Steps

PEER = "ml-goodput"

_PHASES = {
    "tpu_init": "device_init",
    "training_prep": "pre_train",
    "data_loading": "first_batch",
    "custom_badput_event": "wasted.{}",
    "elastic_wait": "scheduling.{}",
    "elastic_reinit": "trainer_init.elastic_reinit",
}
_EDGES = {f"{name}_{edge}_time": (name, edge) for name in _PHASES for edge in ("start", "end")}
_TYPES = ("custom_badput_event_type", "elastic_wait_event_type")
_SLICES = frozenset(
    {"active_slices", "total_slices", "available_slices", "elastic_slice_counts_timestamp"}
)
_TIMES = _EDGES.keys() | {"step_start_time", "job_start_time", "job_end_time"}
_KNOWN = _TIMES | {"job_name", "step_count", *_TYPES}
_MANAGER = ("checkpoint_manager_start_time", "checkpoint_manager_duration_secs")
_ORBAX = {
    "save": (
        "checkpoint_manager_blocking_start_time",
        "checkpoint_manager_blocking_duration_secs",
    ),
    "restore": _MANAGER,
    "emergency_restore": _MANAGER,
}


def read_ml_goodput(
    lines: Iterable[bytes | str], *, first_step_compile: bool = False
) -> Iterator[Told]:
    """Yield our events, and what could not be brought over, as the lines come.

    Several jobs may share a log. With ``first_step_compile`` what the first step of an attempt took
    more than the mean of its others is phase ``compile``; the peer books it so. Memory does not
    grow with the log.
    """
    jobs: dict[str, _Job] = {}
    job: _Job | None = None
    for entry in read_entries(lines):
        if isinstance(entry, Problem):
            yield entry
            continue
        name = entry.fields.get("job_name")
        if isinstance(name, str) and name:
            job = jobs.get(name) or jobs.setdefault(name, _Job(name, first_step_compile))
        elif job is None:
            yield Problem(entry.line, "no job_name; the line was left out")
            continue
        else:
            yield Problem(entry.line, "no job_name; taken for the job of the line before")
        yield from job.take(entry)
    for job in jobs.values():
        yield from job.close()


class _Job:
    """Reads the entries of one job and tells its steps."""

    def __init__(self, name: str, first_step_compile: bool) -> None:
        self._name = name
        self._steps = Steps(PEER, name, first_step_compile)
        self._open: dict[str, Event] = {}

    def take(self, entry: Entry) -> Iterator[Told]:
        """Retell one entry."""
        self._steps.line, fields = entry
        if "event_type" in fields:
            yield from self._orbax(fields)
            return
        for key in fields.keys() & _TIMES:
            time = moment(fields[key])
            if time is None:
                yield self._steps.problem(f"{key} is no time in seconds; it was left out")
            else:
                yield from self._event(key, time, fields)
        if unknown := sorted(fields.keys() - _KNOWN):
            yield self._steps.problem(_left_out(unknown))

    def close(self) -> Iterator[Told]:
        """Tell how the job ends."""
        yield from self._drop_open()
        if self._steps.ended_ns is None:
            yield self._steps.problem(
                f"job {self._name} has no job_end_time: it is taken to be running still"
            )
        yield from self._steps.close()

    def _event(self, key: str, time: int, fields: dict[str, Any]) -> Iterator[Told]:
        if key == "job_start_time":
            yield from self._drop_open()
            yield from self._steps.start(time)
            return
        yield from self._begun(time)
        if key == "job_end_time":
            yield from self._steps.end(time)
        elif key != "step_start_time":
            yield from self._edge(*_EDGES[key], time, fields)
        elif (number := whole(fields.get("step_count"))) is None:
            yield self._steps.problem("step_count is no whole number; the step was left out")
        else:
            yield from self._steps.step(number, time)

    def _begun(self, time: int) -> Iterator[Told]:
        if not self._steps.begun:
            yield self._steps.problem("no job_start_time yet: the first attempt begins here")
            yield from self._steps.start(time)

    def _edge(self, name: str, edge: str, time: int, fields: dict[str, Any]) -> Iterator[Told]:
        told = next((fields[key] for key in _TYPES if key in fields), "unknown")
        phase, lane = _PHASES[name].format(_slug(told)), MAIN
        if name == "data_loading" and self._steps.in_loop:
            # In the loop the peer takes loading for a thread's work.
            phase, lane = "data_wait", name
        if edge == "start":
            if phase in self._open:
                yield self._steps.problem(f"{phase} begins again: the first one has no end")
            for event in self._steps.begin_phase(phase, time, lane):
                yield event
                self._open[phase] = event
            return
        begun = self._open.pop(phase, None)
        if begun is None or time < begun.time_ns:
            yield self._steps.problem(f"{phase} ends without a beginning; the end was left out")
        else:
            yield from self._steps.end_phase(begun, time)

    def _orbax(self, fields: dict[str, Any]) -> Iterator[Told]:
        kind = str(fields["event_type"])
        if kind not in _ORBAX:
            yield self._steps.problem(f"event_type {kind} is unknown; the line was left out")
            return
        begin_key, length_key = _ORBAX[kind]
        begin, length = moment(fields.get(begin_key)), duration(fields.get(length_key))
        if begin is None or length is None:
            yield self._steps.problem(f"{kind} without {begin_key} and {length_key} was left out")
            return
        yield from self._begun(begin)
        number = whole(fields.get("step"))
        if kind != "save":
            yield from self._steps.phase("checkpoint_restore", begin, begin + length)
        elif number is None:
            yield self._steps.problem("a save that names no step was left out")
        else:
            uri = f"{fields.get('directory') or ''}/{number}"
            yield from self._steps.save(begin, begin + length, number, uri)

    def _drop_open(self) -> Iterator[Problem]:
        for phase in self._open:
            yield self._steps.problem(f"{phase} has no end before this line")
        self._open.clear()


def _left_out(names: list[str]) -> str:
    if _SLICES.issuperset(names):
        return "slice counts have no place in our log; they were left out"
    return f"unknown fields were left out: {', '.join(names)}"


def _slug(kind: object) -> str:
    return re.sub(r"\W+", "_", str(kind).lower()).strip("_") or "unknown"
