"""Attempts with their place on the job's clock: begin, interruption, detection, end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import AttemptId, Event, Kind, Layer
from airflow_ett.metric.endings import Outcome, interruptions, job_end, outcome, verdict
from airflow_ett.metric.evidence import Evidence, Notes, table, text, whole
from airflow_ett.metric.job import Job

_ASKED_KINDS = frozenset(
    {Kind.SUBMIT_INTENDED, Kind.SUBMITTED, Kind.ADOPTED, Kind.CANCEL_REQUESTED}
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt on the job's clock; ``[begin_ns, stop_ns)`` of all attempts partition the job.

    ``interruption_ns`` is None unless the attempt was cut short; ``detected_ns`` is when that was
    known. ``allocated_ns``, ``running_ns`` and ``released_ns`` are the scheduler's words, and
    ``first_ns`` and ``last_ns`` the processes' first and last sign of life, each where known.
    ``followed`` says whether another attempt came after it.
    """

    evidence: Evidence
    begin_ns: int
    stop_ns: int
    layer: str
    try_number: int | None
    outcome: Outcome
    cause: str | None
    interruption_ns: int | None
    detected_ns: int
    allocated_ns: int | None
    running_ns: int | None
    released_ns: int | None
    followed: bool

    @property
    def id(self) -> AttemptId:
        """The attempt's identity."""
        return self.evidence.id

    @property
    def first_ns(self) -> int | None:
        """First sign of life of a process, None where there was none."""
        return self.evidence.signs[0] if self.evidence.signs else None

    @property
    def last_ns(self) -> int | None:
        """Last sign of life of a process, None where there was none."""
        return self.evidence.signs[1] if self.evidence.signs else None

    @property
    def proof(self) -> Mapping[str, Any]:
        """What the verdict on the attempt was based on."""
        ended = verdict(self.evidence)
        return table(ended.data, "evidence") if ended else {}


@dataclass(frozen=True, slots=True)
class _Allocation:
    """The scheduler's words on one allocation, which elastic restarts share."""

    allocated_ns: int | None
    running_ns: int | None
    released_ns: int | None


def settle(
    seen: list[Evidence],
    job: Job,
    events: list[Event],
    notes: Notes,
    *,
    now_ns: int | None,
    last_sign_ns: int | None,
) -> list[Attempt]:
    """Place all attempts on the job's clock.

    The clock of an attempt starts at its submission; of a requeue or an elastic restart at the
    first event that bears its number. It ends where the next one's starts.
    """
    if not seen:
        return []
    begins: list[int] = []
    for evidence in seen:
        begin = _begin(evidence, notes)
        if begins and begin < begins[-1]:
            notes.add(f"attempt {evidence.id} begins before the one before it: clocks disagree")
        begins.append(max([begin, *begins[-1:]]))
    allocations = [_allocation(evidence, seen) for evidence in seen]
    released = allocations[-1].released_ns
    end = job_end(seen[-1], job, released, now_ns=now_ns, last_sign_ns=last_sign_ns, notes=notes)
    stops = [*begins[1:], max(begins[-1], end)]
    asked = [event for event in events if event.kind in _ASKED_KINDS]
    return [
        _settle_one(evidence, seen, (begin, stop), allocation, job, asked)
        for evidence, begin, stop, allocation in zip(seen, begins, stops, allocations, strict=True)
    ]


def _begin(evidence: Evidence, notes: Notes) -> int:
    if evidence.id[1:] == (0, 0):
        for kind in (Kind.SUBMITTED, Kind.SUBMIT_INTENDED):
            if times := [event.time_ns for event in evidence.of(kind)]:
                return min(times)
        notes.add(f"no submitted event of attempt {evidence.id}: its clock starts at a later event")
    lives = list(evidence.signs or [])[:1]
    told = [event.time_ns for event in evidence.launcher]
    return min(lives if lives and evidence.id.elastic_restart else lives + told)


def _allocation(evidence: Evidence, seen: list[Evidence]) -> _Allocation:
    group = [other for other in seen if other.id[:2] == evidence.id[:2]]
    states = [e for other in group for e in other.launcher if e.kind == Kind.SCHEDULER_STATE]
    running = (event.time_ns for event in states if event.data.get("state") == "RUNNING")
    started = _told(states, "started_ns", min)
    return _Allocation(
        allocated_ns=_told(states, "allocated_ns", min),
        running_ns=min(running, default=None) if started is None else started,
        released_ns=_told(states, "ended_ns", max) if group[-1] is evidence else None,
    )


def _told(states: Iterable[Event], name: str, choose: Callable[[list[int]], int]) -> int | None:
    times = [time for event in states if (time := whole(event.data, name)) is not None]
    return choose(times) if times else None


def _settle_one(
    evidence: Evidence,
    seen: list[Evidence],
    region: tuple[int, int],
    allocation: _Allocation,
    job: Job,
    asked: list[Event],
) -> Attempt:
    last = evidence is seen[-1]
    begin, stop = region
    mine = [e for e in asked if whole(e.data, "submission") == evidence.id.submission]
    ended = verdict(evidence)
    known = ended.time_ns if ended else job.ended_ns if last else None
    detected = stop if known is None else _within(known, region)
    result, cause = outcome(evidence, job, last=last)
    interruption = None
    if result in (Outcome.USER, Outcome.FAILURE):
        cancels = [e.time_ns for e in mine if e.kind == Kind.CANCEL_REQUESTED]
        cancels = [time for time in cancels if begin <= time < stop]
        times = interruptions(evidence, cancels, allocation.released_ns)
        interruption = _within(min([*times, detected]), region)
    return Attempt(
        evidence=evidence,
        begin_ns=begin,
        stop_ns=stop,
        layer=_layer(evidence, first=evidence is seen[0]),
        try_number=_try(mine, begin),
        outcome=result,
        cause=cause,
        interruption_ns=interruption,
        detected_ns=detected,
        # An elastic restart keeps the machines it has.
        allocated_ns=begin if evidence.id.elastic_restart else allocation.allocated_ns,
        running_ns=allocation.running_ns,
        released_ns=allocation.released_ns,
        followed=not last,
    )


def _layer(evidence: Evidence, *, first: bool) -> str:
    if evidence.id.elastic_restart:
        return Layer.ELASTIC.value
    if evidence.id.scheduler_restart:
        return Layer.SCHEDULER.value
    for kind in (Kind.SUBMITTED, Kind.SUBMIT_INTENDED):
        for event in evidence.of(kind):
            if layer := text(event.data, "layer"):
                return layer
    return Layer.FIRST.value if first else "unknown"


def _try(asked: list[Event], begin: int) -> int | None:
    """Return the Airflow try under which the attempt began: the submission's, or an adopter's."""
    numbers = [
        number
        for event in asked
        if event.kind != Kind.CANCEL_REQUESTED
        and (event.kind != Kind.ADOPTED or event.time_ns <= begin)
        and (number := whole(event.data, "try")) is not None
    ]
    return max(numbers, default=None)


def _within(time: int, region: tuple[int, int]) -> int:
    return max(region[0], min(time, region[1]))
