"""From a heap of events to what the log says of each attempt, without any conclusion yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from airflow_ett.events import AttemptId, Event, Kind, encode

Notes = set[str]
"""What is missing or contradictory in the log, in sentences for its reader."""

TRAINER_KINDS = frozenset(
    {
        Kind.SESSION_STARTED,
        Kind.RESUMED,
        Kind.PHASE_BEGIN,
        Kind.PHASE_END,
        Kind.INTERVAL,
        Kind.CHECKPOINT_SAVED,
        Kind.CHECKPOINT_COMMITTED,
        Kind.COMPILE,
        Kind.STALLED,
        Kind.SESSION_ENDED,
    }
)
PROCESS_KINDS = frozenset({Kind.PROCESS_STARTED, Kind.PROCESS_ENDED, Kind.FAILURE, Kind.SIGNAL})
_MOST = 2**63 - 1
_SUBMISSION_KINDS = frozenset({Kind.SUBMIT_INTENDED, Kind.SUBMITTED, Kind.SCHEDULER_STATE})


def whole(data: Mapping[str, Any], name: str) -> int | None:
    """Return the field if it is a whole number from 0 to 2**63 - 1, else None."""
    value = data.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    return None


def text(data: Mapping[str, Any], name: str) -> str | None:
    """Return the field if it is a text with something in it, else None."""
    value = data.get(name)
    return value if isinstance(value, str) and value else None


def table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the field if it is an object, else an empty one."""
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def in_order(events: Iterable[Event], notes: Notes) -> list[Event]:
    """Return one job's events by time, each once, whatever order and copies came in.

    Of two events under one number the later one counts: an open interval that was read before it
    grew is the only honest case.
    """
    kept: dict[tuple[str, str, int], Event] = {}
    for event in events:
        name = (event.job, event.writer, event.seq)
        other = kept.setdefault(name, event)
        if other != event:
            kept[name] = max(other, event, key=lambda e: (e.time_ns, encode(e)))
    jobs = sorted({event.job for event in kept.values()})
    if len(jobs) > 1:
        notes.add(f"events of {len(jobs) - 1} other jobs were skipped")
    mine = [event for event in kept.values() if event.job == jobs[0]]
    _note_lost(mine, notes)
    return sorted(mine, key=lambda event: (event.time_ns, event.writer, event.seq))


def _note_lost(events: list[Event], notes: Notes) -> None:
    """Tell gaps in the writers' numbering.

    A Session that never ended may hold one number reserved for the interval that is open: it lies
    beyond those of all intervals written.
    """
    numbers: dict[str, set[int]] = {}
    closed: dict[str, int] = {}
    for event in events:
        numbers.setdefault(event.writer, set()).add(event.seq)
        if event.kind == Kind.INTERVAL:
            closed[event.writer] = max(closed.get(event.writer, 0), event.seq)
    live = Counter(event.writer for event in events if event.kind == Kind.SESSION_STARTED)
    live.subtract(event.writer for event in events if event.kind == Kind.SESSION_ENDED)
    for writer, known in numbers.items():
        count = max(known) + 1 - len(known)
        if count and live[writer] > 0:
            beyond = range(closed.get(writer, -1) + 1, max(known))
            count -= any(number not in known for number in beyond)
        if count:
            notes.add(f"events of writer {writer} are missing: {count}")


@dataclass
class Evidence:
    """What the log holds of one attempt: each list is in order of time."""

    id: AttemptId
    launcher: list[Event] = field(default_factory=list)
    processes: list[Event] = field(default_factory=list)
    ranks: dict[int, list[Event]] = field(default_factory=dict)

    @property
    def main_rank(self) -> int | None:
        """Rank 0, or the lowest rank that wrote anything."""
        return min(self.ranks, default=None)

    @cached_property
    def signs(self) -> tuple[int, int] | None:
        """First and last moment at which a process of the attempt is known to have lived."""
        times: list[int] = []
        for event in [*self.processes, *(e for events in self.ranks.values() for e in events)]:
            times.append(event.time_ns)
            if event.kind == Kind.INTERVAL:
                times += [t for t in (whole(event.data, "from"), whole(event.data, "to")) if t]
        return (min(times), max(times)) if times else None

    def of(self, *kinds: Kind) -> list[Event]:
        """Return the events of these kinds, kind by kind; within one the main rank's come first."""
        return [event for kind in kinds for event in self._by_kind.get(kind, ())]

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for events in (self.launcher, self.processes, *(self.ranks[r] for r in sorted(self.ranks))):
            for event in events:
                found.setdefault(event.kind, []).append(event)
        return found


def gather(events: list[Event], notes: Notes) -> list[Evidence]:
    """Sort events to their attempts, in the order of the attempts' identities.

    An attempt exists as soon as anything names it: no process need ever have run.
    """
    found: dict[AttemptId, Evidence] = {}
    for event in events:
        kind = event.kind
        if kind in _SUBMISSION_KINDS or kind == Kind.ATTEMPT_ENDED:
            name = _submission_attempt(event) if kind in _SUBMISSION_KINDS else event.attempt
        elif kind in TRAINER_KINDS or kind in PROCESS_KINDS:
            name = event.attempt
        else:
            continue
        if name is None:
            notes.add(f"events of kind {kind} that name no attempt were skipped")
            continue
        evidence = found.setdefault(name, Evidence(name))
        if kind in TRAINER_KINDS:
            evidence.ranks.setdefault(event.rank or 0, []).append(event)
        else:
            (evidence.processes if kind in PROCESS_KINDS else evidence.launcher).append(event)
    return [found[name] for name in sorted(found)]


def _submission_attempt(event: Event) -> AttemptId | None:
    submission = whole(event.data, "submission")
    if submission is None:
        return event.attempt
    return AttemptId(submission, whole(event.data, "restart") or 0)
