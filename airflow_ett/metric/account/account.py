"""What the attempts come to, taken one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from airflow_ett.events import Kind
from airflow_ett.metric.account.diagnosis import clock_skew, known_cursor, slowest, unseen_end
from airflow_ett.metric.account.held import held
from airflow_ett.metric.account.ledger import Unsaved, compiles, resumed
from airflow_ett.metric.account.levels import Levels, advance
from airflow_ett.metric.account.levers import levers
from airflow_ett.metric.account.nodes import Nodes
from airflow_ett.metric.account.stretches import booked, spread
from airflow_ett.metric.account.waits import waits
from airflow_ett.metric.clock.endings import Outcome, verdict
from airflow_ett.metric.evidence.fields import Notes, text
from airflow_ett.metric.result import AttemptMetric, Booked, Compile
from airflow_ett.metric.timeline.trace import Stretch, Timeline


class Account:
    """Sums over attempts, in their order. Copies share nothing that changes.

    ``excluded_in`` is what of ``excluded`` each attempt leaves out; ``failures`` are the number and
    cause of those that nobody wished to end.
    """

    def __init__(self, excluded: Sequence[Stretch]) -> None:
        self.excluded = excluded
        self.excluded_in: list[Sequence[Stretch]] = []
        self.levels = Levels()
        self.unsaved = Unsaved()
        self.timelines: list[Timeline] = []
        self.attempts: list[AttemptMetric] = []
        self.compiles: list[Compile] = []
        self.failures: list[tuple[int, str]] = []
        self.notes: Notes = set()
        self.first_advance_ns: int | None = None
        self.progress_ns: int | None = None
        self._unseen: Timeline | None = None
        self._held: list[Stretch] = []
        self._group: list[Timeline] = []

    def copy(self) -> Account:
        """Return the same, to go on with on its own."""
        other = Account(self.excluded)
        other.excluded_in = self.excluded_in.copy()
        other.levels, other.unsaved = self.levels.copy(), self.unsaved.copy()
        other.timelines, other.attempts = self.timelines.copy(), self.attempts.copy()
        other.compiles, other.failures = self.compiles.copy(), self.failures.copy()
        other.notes = self.notes.copy()
        other.first_advance_ns, other.progress_ns = self.first_advance_ns, self.progress_ns
        other._unseen = self._unseen
        other._held, other._group = self._held.copy(), self._group.copy()
        return other

    def take(self, timeline: Timeline) -> None:
        """Take the next attempt."""
        number, attempt, walk = len(self.timelines), timeline.attempt, timeline.walk
        excluded = spread(timeline, self.excluded) if self.excluded else ()
        self.timelines.append(timeline)
        self.excluded_in.append(excluded)
        self.levels.take(number, timeline, excluded)
        self.unsaved.take(number, timeline)
        self.attempts.append(_attempt(timeline, excluded, self.notes))
        self.compiles += compiles(attempt.evidence)
        if attempt.outcome is Outcome.FAILURE:
            self.failures.append((number, str(attempt.cause)))
        if self.first_advance_ns is None:
            self.first_advance_ns = advance(timeline)
        self.progress_ns = walk.progress_ns or self.progress_ns
        self.notes |= timeline.notes | attempt.evidence.notes()
        if any(timeline.straddling(edge) for stretch in self.excluded for edge in stretch):
            self.notes.add("planned maintenance cuts an interval of many steps: split pro rata")
        self._check_hwm(timeline)
        if self._group and self._group[0].attempt.id[:2] != attempt.id[:2]:
            self._held += held(self._group)
            self._group = []
        self._group.append(timeline)

    def _check_hwm(self, timeline: Timeline) -> None:
        """Tell where nobody knows how far the training had come."""
        cursor = known_cursor(timeline.attempt.evidence)
        if self._unseen is not None and cursor is not None:
            if cursor < self._unseen.walk.hwm:
                self.notes.add(
                    f"hwm_stale: attempt {self._unseen.attempt.id} ended unseen, and its cursor "
                    "file is gone: what it trained last may count as new once more"
                )
            self._unseen = None
        if timeline.walk.cursor_to is not None and unseen_end(timeline.attempt):
            self._unseen = timeline

    def held(self) -> list[Stretch]:
        """Return when accelerators were held; stretches may overlap."""
        return self._held + (held(self._group) if self._group else [])

    def follower(self, number: int) -> str:
        """Return the layer that began the attempt after ``number``, ``none`` if there is none."""
        return self.attempts[number + 1].layer if number + 1 < len(self.attempts) else "none"


def by_phase(found: Booked) -> dict[str, int]:
    """Return phase -> nanoseconds."""
    total: Counter[str] = Counter()
    for booking, ns in found.items():
        total[booking.phase] += ns
    return dict(+total)


def _attempt(timeline: Timeline, excluded: Sequence[Stretch], notes: Notes) -> AttemptMetric:
    attempt, walk = timeline.attempt, timeline.walk
    went_on = resumed(attempt.evidence, walk)
    found = booked(timeline, attempt.begin_ns, attempt.stop_ns, excluded)
    nodes = Nodes(attempt.evidence)
    told = attempt.evidence.of(Kind.SCHEDULER_STATE)
    logs = [(e.time_ns, log) for e in told if (log := text(e.data, "log"))]
    return AttemptMetric(
        id=attempt.id,
        try_number=attempt.try_number,
        layer=str(attempt.layer),
        cause=None if attempt.cause is None else str(attempt.cause),
        evidence=attempt.proof,
        begin_ns=attempt.begin_ns,
        end_ns=attempt.stop_ns,
        detected_ns=ended.time_ns if (ended := verdict(attempt.evidence)) else None,
        cursor_from=went_on.cursor,
        cursor_to=walk.cursor_to,
        resumed_from=went_on.uri,
        phases_ns=by_phase(found),
        booked=found,
        host=nodes.hosts[0] if nodes.hosts else None,
        hosts=nodes.hosts,
        log=max(logs)[1] if logs else None,
        clock_skew=clock_skew(attempt, notes),
        slowest=slowest(attempt.evidence, nodes),
        waits=waits(attempt.evidence, attempt.stop_ns),
        levers=levers(attempt.evidence),
    )
