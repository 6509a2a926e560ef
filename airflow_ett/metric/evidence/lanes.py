"""The phases that a rank opened and closed, and where one ends that was never closed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric.evidence.fields import Notes, order, text
from airflow_ett.metric.phases import RESERVED, Phase

MAIN = "main"
_Name = tuple[str, str]


class Claim(NamedTuple):
    """A stretch of a lane for which there is evidence.

    Where claims overlap, the one with the later ``opened_ns`` is the inner one and wins; on a tie
    the shorter one.
    """

    begin_ns: int
    end_ns: int
    phase: str
    opened_ns: int


@dataclass(slots=True)
class Closed:
    """The phases of a lane that have an end, in the order of their begins."""

    claims: list[Claim] = field(default_factory=list)
    _reach: list[int] = field(default_factory=list)

    def add(self, claim: Claim) -> None:
        """Take one more phase, nearly always the newest."""
        at = bisect_right(self.claims, claim)
        self.claims.insert(at, claim)
        del self._reach[at:]

    def around(self, time: int) -> int | None:
        """Return the first end of the phases around ``time``, None where there is none."""
        for claim in self.claims[len(self._reach) :]:
            self._reach.append(max(claim.end_ns, self._reach[-1] if self._reach else 0))
        at = bisect_left(self.claims, time, key=lambda claim: claim.begin_ns)
        first = None
        while at and self._reach[at - 1] > time:
            at -= 1
            end = self.claims[at].end_ns
            if end > time and (first is None or end < first):
                first = end
        return first


class Opened(NamedTuple):
    """A phase that has begun."""

    begin_ns: int
    phase: str
    lane: str


class Lanes:
    """The phases of one rank, paired as their events come.

    ``spent`` sums the lengths of those on the main lane that have ended, by name;
    ``first_batch_ns`` and ``shutdown_ns`` tell when phases of these names began.
    """

    def __init__(self, attempt: AttemptId) -> None:
        self._attempt = attempt
        self._begins: dict[_Name, Event] = {}
        self._ends: dict[_Name, Event] = {}
        self.open: dict[_Name, Opened] = {}
        self.closed: dict[str, Closed] = {}
        self.spent: Counter[str] = Counter()
        self._fresh: list[tuple[str, Claim]] = []
        self.first_batch_ns: int | None = None
        self.shutdown_ns: list[int] = []
        self._notes: Notes = set()

    def add(self, event: Event) -> bool:
        """Take a phase's begin or end; of several the first counts.

        Returns False where an earlier one came later, so that all have to be added anew, in order.
        """
        name = (event.writer, str(event.data.get("span")))
        told = self._begins if event.kind == Kind.PHASE_BEGIN else self._ends
        known = told.get(name)
        if known is not None:
            return order(known) <= order(event)
        told[name] = event
        if event.kind == Kind.PHASE_BEGIN:
            self._begin(name, event)
        if name in self._ends and name in self.open:
            self._close(name, self._ends[name].time_ns)
        return True

    def take_fresh(self) -> list[tuple[str, Claim]]:
        """Return lane and claim of the phases that got their end since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def notes(self) -> Notes:
        """Return what is odd about the phases that have ended."""
        if len(self._begins) - len(self.open) < len(self._ends):
            return self._notes | {f"a phase of attempt {self._attempt} has an end and no begin"}
        return self._notes

    def _begin(self, name: _Name, event: Event) -> None:
        phase = text(event.data, "phase")
        lane = text(event.data, "lane") or MAIN
        if phase is None or phase in RESERVED:
            what = "a phase without a name" if phase is None else f"phase {phase} by name"
            self._notes.add(f"attempt {self._attempt} opened {what}: taken for loop_other")
            phase = Phase.LOOP_OTHER.value
        elif phase == Phase.FIRST_BATCH and lane == MAIN:
            known = self.first_batch_ns
            self.first_batch_ns = event.time_ns if known is None else min(known, event.time_ns)
        elif phase == Phase.SHUTDOWN and lane == MAIN:
            insort(self.shutdown_ns, event.time_ns)
        self.open[name] = Opened(event.time_ns, phase, lane)

    def _close(self, name: _Name, end_ns: int) -> None:
        opened = self.open.pop(name)
        if end_ns < opened.begin_ns:
            self._notes.add(
                f"phase {opened.phase} of attempt {self._attempt} ends before it begins"
            )
            return
        claim = Claim(opened.begin_ns, end_ns, opened.phase, opened.begin_ns)
        self.closed.setdefault(opened.lane, Closed()).add(claim)
        self._fresh.append((opened.lane, claim))
        if opened.lane == MAIN:
            self.spent[opened.phase] += end_ns - opened.begin_ns
