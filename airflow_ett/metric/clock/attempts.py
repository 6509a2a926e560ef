"""Attempts with their place on the job's clock: begin, interruption, detection, end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, zip_longest
from typing import Any

from airflow_ett.events import AttemptId, Cause, Event, Kind, Layer
from airflow_ett.metric.clock.endings import (
    SKEW_NS,
    Outcome,
    interruptions,
    job_end,
    outcome,
    verdict,
)
from airflow_ett.metric.clock.job import Job
from airflow_ett.metric.evidence.attempt import Evidence, Told
from airflow_ett.metric.evidence.fields import Notes, table, text, whole

_ASKED_KINDS = (Kind.SUBMIT_INTENDED, Kind.SUBMITTED, Kind.ADOPTED, Kind.CANCEL_REQUESTED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt on the job's clock; ``[begin_ns, stop_ns)`` of all attempts partition the job.

    ``interruption_ns`` is None unless the attempt was cut short; ``detected_ns`` is when that was
    known. ``allocated_ns``, ``running_ns`` and ``released_ns`` are the scheduler's words, and
    ``first_ns`` and ``last_ns`` the processes' first and last sign of life, each where known.
    ``followed`` says whether another attempt came after it, or will: a user asked for it.
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


@dataclass(frozen=True, slots=True)
class Place:
    """An attempt's place on the job's clock before its end is known.

    ``told_ns`` is its begin by its own evidence, which may lie before that of the attempt before.
    ``asked`` is what the launcher did about its submission.
    """

    evidence: Evidence
    told_ns: int
    begin_ns: int
    first: bool
    allocation: _Allocation
    asked: list[Event]


def place(seen: list[Evidence], told: Told, notes: Notes) -> list[Place]:
    """Place all attempts on the job's clock; ``told`` are the job's own events by kind.

    The clock of an attempt starts at its submission; of a requeue or an elastic restart at the
    first event that bears its number. It ends where the next one's starts.
    """
    told_ns = [begin_of(evidence, notes) for evidence in seen]
    begins = [*accumulate(told_ns, max)]
    for evidence, own, begin in zip(seen, told_ns, begins, strict=True):
        if own < begin:
            notes.add(f"attempt {evidence.id} begins before the one before it: clocks disagree")
    allocations = _allocations(seen, begins)
    for evidence, allocation in zip(seen, allocations, strict=True):
        alive, released = evidence.signs, allocation.released_ns
        if alive is not None and released is not None and alive[1] > released + SKEW_NS:
            notes.add(
                f"attempt {evidence.id} outlived its end as the scheduler tells it: clocks disagree"
            )
    asked = _by_submission(told)
    return [
        Place(evidence, own, begin, evidence is seen[0], allocation, asked[evidence.id.submission])
        for evidence, own, begin, allocation in zip(seen, told_ns, begins, allocations, strict=True)
    ]


def settle_last(place: Place, job: Job, *, now_ns: int | None, last_sign_ns: int | None) -> Attempt:
    """Return the job's last attempt, which ends where the job's clock stands or stopped."""
    end = job_end(
        place.evidence,
        job,
        place.allocation.released_ns,
        now_ns=now_ns,
        last_sign_ns=last_sign_ns,
    )
    return settle(place, job, max(place.begin_ns, end), last=True)


def settle(place: Place, job: Job, stop_ns: int, *, last: bool) -> Attempt:
    """Return the attempt that ends at ``stop_ns``; another one follows unless it is the last."""
    evidence, begin = place.evidence, place.begin_ns
    region = begin, stop_ns
    ended = verdict(evidence)
    known = ended.time_ns if ended else job.ended_ns if last else None
    detected = stop_ns if known is None else _within(known, region)
    result, cause = outcome(evidence, job, last=last)
    interruption = None
    if result in (Outcome.USER, Outcome.FAILURE):
        cancels = [e.time_ns for e in place.asked if e.kind == Kind.CANCEL_REQUESTED]
        cancels = [time for time in cancels if begin <= time < stop_ns]
        times = interruptions(evidence, cancels, place.allocation.released_ns)
        interruption = _within(min([*times, detected]), region)
    allocation = place.allocation
    return Attempt(
        evidence=evidence,
        begin_ns=begin,
        stop_ns=stop_ns,
        layer=_layer(evidence, first=place.first),
        try_number=_try(place.asked, begin),
        outcome=result,
        cause=cause,
        interruption_ns=interruption,
        detected_ns=detected,
        # An elastic restart keeps the machines it has.
        allocated_ns=begin if evidence.id.elastic_restart else allocation.allocated_ns,
        running_ns=allocation.running_ns,
        released_ns=allocation.released_ns,
        followed=not last or (job.ended_ns is None and cause == Cause.USER_RESTART),
    )


def _by_submission(asked: Told) -> defaultdict[int | None, list[Event]]:
    found: defaultdict[int | None, list[Event]] = defaultdict(list)
    for kind in _ASKED_KINDS:
        for event in asked.get(kind, ()):
            found[whole(event.data, "submission")].append(event)
    return found


def begin_of(evidence: Evidence, notes: Notes) -> int:
    """Return when the attempt's clock starts, by its own evidence."""
    if evidence.id[1:] == (0, 0):
        for kind in (Kind.SUBMITTED, Kind.SUBMIT_INTENDED):
            if times := [event.time_ns for event in evidence.of(kind)]:
                return min(times)
        notes.add(f"no submitted event of attempt {evidence.id}: its clock starts at a later event")
    lived = evidence.signs[0] if evidence.signs else None
    told = evidence.launcher_first_ns
    if evidence.id.elastic_restart and lived is not None:
        return lived
    return min(time for time in (lived, told) if time is not None)


def _allocations(seen: list[Evidence], begins: list[int]) -> list[_Allocation]:
    """Return each attempt's allocation; elastic restarts share one, which the last of them ends.

    An end that lies behind the begin of the submission's next restart belongs to that one:
    not every scheduler tells its restarts apart.
    """
    found: list[_Allocation] = []
    late: list[int] = []
    groups = [[*group] for _, group in groupby(seen, key=lambda evidence: evidence.id[:2])]
    for group, following in zip_longest(groups, groups[1:]):
        states = [event for evidence in group for event in evidence.of(Kind.SCHEDULER_STATE)]
        running = [event.time_ns for event in states if event.data.get("state") == "RUNNING"]
        ends = late + _told(states, "ended_ns")
        late = []
        if following and following[0].id.submission == group[0].id.submission:
            next_ns = begins[len(found) + len(group)]
            late = [end for end in ends if end > next_ns]
            ends = [end for end in ends if end <= next_ns]
        shared = _Allocation(
            allocated_ns=min(_told(states, "allocated_ns"), default=None),
            running_ns=min(_told(states, "started_ns") or running, default=None),
            released_ns=None,
        )
        found += [shared] * (len(group) - 1) + [
            replace(shared, released_ns=max(ends, default=None))
        ]
    return found


def _told(states: Iterable[Event], name: str) -> list[int]:
    return [time for event in states if (time := whole(event.data, name)) is not None]


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
