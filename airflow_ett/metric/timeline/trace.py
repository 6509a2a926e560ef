"""One attempt's time, partitioned: the main lane, what lies beside it, and what the steps did."""

from __future__ import annotations

from array import array
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator

from airflow_ett.events import AttemptId, Kind
from airflow_ett.metric.clock.attempts import Attempt
from airflow_ett.metric.clock.endings import SKEW_NS, Outcome
from airflow_ett.metric.clock.job import Job
from airflow_ett.metric.evidence.attempt import Evidence, Rank
from airflow_ett.metric.evidence.fields import FOREVER, Notes
from airflow_ett.metric.evidence.lanes import MAIN, Claim
from airflow_ett.metric.evidence.rows import Rows
from airflow_ett.metric.phases import Components
from airflow_ett.metric.progress import Progress
from airflow_ett.metric.result import Booked, Lane, Span
from airflow_ett.metric.timeline.gaps import Marks, gaps
from airflow_ett.metric.timeline.innermost import cut
from airflow_ett.metric.timeline.track import Course, Track
from airflow_ett.metric.timeline.unended import stalled, unended
from airflow_ett.metric.timeline.walk import Walk, known_hwm

Stretch = tuple[int, int]
"""Begin and end, in nanoseconds."""


_MOST_KNOWN = 64


class Timeline:
    """One attempt's time as one look found it.

    ``over_ns`` is the end of training in an attempt that ended well, None where nothing tells it;
    from ``lead_until_ns`` on the main rank leads.
    """

    def __init__(
        self,
        attempt: Attempt,
        track: Track,
        beside: tuple[Span, ...],
        over_ns: int | None,
        lead_until_ns: int,
        hwm: int,
        notes: Notes,
    ) -> None:
        self.attempt = attempt
        self.walk: Walk = track.walk
        self.over_ns = over_ns
        self.lead_until_ns = lead_until_ns
        self.notes = notes
        self.total: Booked = track.settled.total() + track.tail.total()
        self._beside = beside
        self._rows, self._count = track.rows, len(track.rows)
        self._hwm = hwm
        self._parts = tuple((part, len(part), part.end_ns) for part in (track.settled, track.tail))
        self._known: dict[tuple[int, int], Booked] = {}

    def between(self, begin_ns: int, end_ns: int) -> Booked:
        """Return what is booked in ``[begin_ns, end_ns)``."""
        begin = max(begin_ns, self.attempt.begin_ns)
        end = max(begin, min(end_ns, self.attempt.stop_ns))
        if (begin, end) == (self.attempt.begin_ns, self.attempt.stop_ns):
            return self.total
        if (begin, end) not in self._known:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known[begin, end] = self._until(end) - self._until(begin)
        return self._known[begin, end]

    def straddling(self, time_ns: int) -> tuple[Stretch, ...]:
        """Return the spans of the interval of many steps within which the moment lies.

        Where they lie within it is a convention. Empty where there is none, or only one span.
        """
        attempt, number = self.attempt, self._rows.before(time_ns) - 1
        if number < 0 or not attempt.begin_ns < time_ns < attempt.stop_ns:
            return ()
        row = self._rows.row(number)
        begin, end = max(row.begin_ns, attempt.begin_ns), min(row.end_ns, attempt.stop_ns)
        if row.steps < 2 or not begin < time_ns < end:
            return ()
        pieces = [piece for part, _, _ in self._parts for piece in part.pieces(begin, end)]
        return tuple(pieces) if len(pieces) > 1 else ()

    @property
    def last_phase(self) -> str | None:
        """The phase in which the attempt stands at its end."""
        return next((part.last_phase for part, count, _ in reversed(self._parts) if count), None)

    def _until(self, time_ns: int) -> Booked:
        total: Booked = Counter()
        for part, _, _ in self._parts:
            total.update(part.until(time_ns))
        return total

    def spans(self) -> Iterator[Span]:
        """Iterate over the spans: those of lane ``main`` partition the attempt, others follow."""
        held: Span | None = None
        for part, count, end_ns in self._parts:
            for begin, end, phase in part.spans(count, end_ns):
                if held is not None and held.phase == phase:
                    held = held._replace(end_ns=end)
                    continue
                if held is not None:
                    yield held
                held = Span(begin, end, phase, self.attempt.id)
        if held is not None:
            yield held
        yield from self._beside

    def lane(self) -> Iterator[Lane]:
        """Yield all spans, packed."""
        edges, keys = array("q"), array("I")
        phases: list[str] = []
        stop_ns = self.attempt.begin_ns
        for part, count, end_ns in self._parts:
            begins, numbers, names = part.packed(count)
            stop_ns = end_ns
            if keys and numbers and phases[keys[-1]] == names[numbers[0]]:
                del begins[0], numbers[0]
            edges.extend(begins)
            keys.extend(map(len(phases).__add__, numbers))
            phases += names
        edges.append(stop_ns)
        yield Lane(self.attempt.id, edges, keys, tuple(phases), self._beside)

    def progress(self) -> Iterator[Progress]:
        """Yield where the main rank's cursor stood, and when."""
        yield Progress(self.attempt.id, self._hwm, *self._rows.stepping(self._count))


class Tracer:
    """Makes one attempt's :class:`Timeline`, at each look from where it was."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._track = Track(components)
        self._stalls: frozenset[Claim] = frozenset()
        self._beside: list[Span] = []

    def trace(self, attempt: Attempt, job: Job, hwm: int) -> Timeline:
        """Partition the attempt's time, with ``hwm`` the high-water mark of those before it.

        Until the last rank's first step begins, the partition follows that rank; then the main
        rank.
        """
        evidence, notes = attempt.evidence, set[str]()
        lead = _Lead(evidence)
        marks = _marks(attempt, lead.first, lead.main)
        over, still = stalled(attempt)
        if not self._stalls <= over:
            self._track = Track(self._components)
        course = Course(
            attempt=attempt.id,
            begin_ns=attempt.begin_ns,
            stop_ns=attempt.stop_ns,
            hwm=known_hwm(evidence, hwm),
            leader=lead.first,
            cut_ns=lead.until_ns,
            loop_ns=FOREVER if marks.loop_ns is None else marks.loop_ns,
            rows=lead.main.rows if lead.main else _NO_ROWS,
            resumes=lead.main.resumes() if lead.main else (),
            open=(*lead.unended(attempt, notes), *still),
            gaps=tuple(gaps(attempt, job, marks, notes)),
        )
        fresh = [*self._take_fresh(lead, evidence), *(over - self._stalls)]
        self._stalls = over
        self._track.look(course, fresh, lambda: [*lead.closed(), *over])
        self._note_outside(attempt, notes)
        beside = (*self._beside, *_beside(attempt, notes))
        notes |= self._track.walk.notes
        return Timeline(
            attempt, self._track, beside, marks.over_ns, lead.until_ns, course.hwm, notes
        )

    def _take_fresh(self, lead: _Lead, evidence: Evidence) -> list[Claim]:
        """Return what is new on the leading lane; what is new beside it is sorted in."""
        fresh: list[Claim] = []
        for rank in evidence.ranks.values():
            for lane, claim in rank.lanes.take_fresh():
                if lane == MAIN:
                    fresh += lead.share(rank, [claim])
                else:
                    insort(self._beside, _span(evidence.id, lane, claim))
        return fresh

    def _note_outside(self, attempt: Attempt, notes: Notes) -> None:
        early, late = self._track.early_ns, self._track.late_ns
        if early < attempt.begin_ns - SKEW_NS or late > attempt.stop_ns + SKEW_NS:
            notes.add(f"attempt {attempt.id} tells of time outside of its own: clocks disagree")


_NO_ROWS = Rows()


def _span(attempt: AttemptId, lane: str, claim: Claim) -> Span:
    return Span(claim.begin_ns, claim.end_ns, claim.phase, attempt, lane)


class _Lead:
    """Who leads: rank ``first`` until ``until_ns``, when its first step begins, then ``main``.

    While the main rank waits in its first step, a rank that has not even begun its loop leads.
    """

    def __init__(self, evidence: Evidence) -> None:
        number = evidence.main_rank
        self.main = None if number is None else evidence.ranks[number]
        self.first, self.until_ns = self.main, 0
        begin, late = max(
            ((_first_step(rank, self.main), -number) for number, rank in evidence.ranks.items()),
            default=(0, 0),
        )
        if evidence.ranks and begin and evidence.ranks[-late] is not self.main:
            self.first, self.until_ns = evidence.ranks[-late], begin

    def share(self, rank: Rank, claims: Iterable[Claim]) -> list[Claim]:
        """Return what of a rank's claims lies where it leads."""
        if rank is self.main:
            return cut(claims, self.until_ns, FOREVER)
        return cut(claims, 0, self.until_ns) if rank is self.first else []

    def _ranks(self) -> list[Rank]:
        return [
            rank for rank in {id(rank): rank for rank in (self.main, self.first)}.values() if rank
        ]

    def closed(self) -> list[Claim]:
        """Return the leading ranks' claims that have an end."""
        known = [(rank, rank.lanes.closed.get(MAIN)) for rank in self._ranks()]
        return [c for rank, told in known if told for c in self.share(rank, told.claims)]

    def unended(self, attempt: Attempt, notes: Notes) -> list[Claim]:
        """Return those whose end may still move."""
        return [
            claim
            for rank in self._ranks()
            for lane, told in unended(attempt, rank, notes)
            if lane == MAIN
            for claim in self.share(rank, [told])
        ]


def _first_step(rank: Rank, main: Rank | None) -> int:
    """Return when the rank's first step began; 0 if it does not matter to who leads."""
    if rank.first_step_ns is not None:
        return rank.first_step_ns
    stuck = main is not None and main.first_step_ns is None and main.lanes.first_batch_ns
    return FOREVER if stuck and rank.lanes.first_batch_ns is None else 0


def _marks(attempt: Attempt, first: Rank | None, main: Rank | None) -> Marks:
    if first is None or main is None:
        return Marks(None, None, None)
    started = [event.time_ns for event in first.told.get(Kind.SESSION_STARTED, ())]
    loops = [time for time in (first.lanes.first_batch_ns, first.first_step_ns) if time is not None]
    over = None
    if attempt.outcome is Outcome.SUCCESS:
        since, end = main.last_session(), main.session_end()
        closing = [time for time in main.lanes.shutdown_ns if time >= since]
        over = min([*closing, *([] if end is None else [end])], default=None)
    return Marks(
        session_ns=min(started, default=first.first_ns),
        loop_ns=min(loops, default=None),
        over_ns=over,
    )


def _beside(attempt: Attempt, notes: Notes) -> list[Span]:
    """Return what background lanes still do. What is odd in any rank's open phases is noted."""
    lanes = [
        (lane, claim)
        for rank in attempt.evidence.ranks.values()
        for lane, claim in unended(attempt, rank, notes)
    ]
    return sorted(_span(attempt.id, lane, claim) for lane, claim in lanes if lane != MAIN)
