"""What the log holds of one attempt, sorted by kind and rank, without any conclusion yet."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric.evidence.fields import FOREVER, Notes, order, whole
from airflow_ett.metric.evidence.lanes import Lanes
from airflow_ett.metric.evidence.rows import Rows

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
        Kind.LEVER,
        Kind.STALLED,
        Kind.SESSION_ENDED,
    }
)
PROCESS_KINDS = frozenset({Kind.PROCESS_STARTED, Kind.PROCESS_ENDED, Kind.FAILURE, Kind.SIGNAL})
SUBMISSION_KINDS = frozenset({Kind.SUBMIT_INTENDED, Kind.SUBMITTED, Kind.SCHEDULER_STATE})
_PHASE_KINDS = frozenset({Kind.PHASE_BEGIN, Kind.PHASE_END})
_SAVE_KINDS = frozenset({Kind.CHECKPOINT_SAVED, Kind.CHECKPOINT_COMMITTED})

Told = dict[str, list[Event]]
"""Events by kind, each list in order of time."""


def tell(told: Told, event: Event) -> None:
    """Put ``event`` in its place."""
    insort(told.setdefault(event.kind, []), event, key=order)


class Rank:
    """One rank's part: its intervals, its phases, and whatever else it told."""

    def __init__(self, attempt: AttemptId, rows: Rows) -> None:
        self.rows = rows
        self.lanes = Lanes(attempt)
        self.told: Told = {}
        self.first_told_ns = FOREVER

    @property
    def first_ns(self) -> int | None:
        """When it wrote first."""
        first = min(self.first_told_ns, self.rows.earliest_ns)
        return None if first == FOREVER else first

    @property
    def first_step_ns(self) -> int | None:
        """When its first step began."""
        return self.rows.row(0).begin_ns if len(self.rows) else None

    def last_session(self) -> int:
        """Return when its last Session started: a process may run several in turn."""
        return max((e.time_ns for e in self.told.get(Kind.SESSION_STARTED, ())), default=0)

    def resumes(self) -> tuple[int, ...]:
        """Return when it went on from a checkpoint."""
        return tuple(event.time_ns for event in self.told.get(Kind.RESUMED, ()))

    def session_ends(self) -> list[int]:
        """Return when its Sessions ended, in order."""
        return [event.time_ns for event in self.told.get(Kind.SESSION_ENDED, ())]

    def session_end(self) -> int | None:
        """Return when its last Session ended, None if it never said so."""
        since = self.last_session()
        return next((time for time in self.session_ends() if time >= since), None)


class Evidence:
    """What the log holds of one attempt. It exists as soon as anything names it.

    ``saves`` are its checkpoints' events in order of time. ``touched`` says that something was
    added since a reader set it to False.
    """

    def __init__(self, name: AttemptId) -> None:
        self.id = name
        self.touched = True
        self.ranks: dict[int, Rank] = {}
        self.saves: list[Event] = []
        self._told: Told = {}
        self._first = FOREVER
        self._last = -1
        self._launcher_first = FOREVER

    @property
    def main_rank(self) -> int | None:
        """Rank 0, or the lowest rank that wrote anything."""
        return min(self.ranks, default=None)

    @property
    def signs(self) -> tuple[int, int] | None:
        """First and last moment at which a process of the attempt is known to have lived."""
        first, last = self._first, self._last
        for rank in self.ranks.values():
            first = min(first, rank.rows.earliest_ns)
            last = max(last, rank.rows.latest_ns)
        return None if last < 0 else (first, last)

    @property
    def launcher_first_ns(self) -> int | None:
        """When the launcher first told of it."""
        return None if self._launcher_first == FOREVER else self._launcher_first

    def rank(self, number: int, rows: Rows | None = None) -> Rank:
        """Return the rank's part, made on its first event, with ``rows`` as its rows."""
        if number not in self.ranks:
            self.ranks[number] = Rank(self.id, Rows() if rows is None else rows)
        return self.ranks[number]

    def add(self, event: Event) -> bool:
        """Take an event that is no row; returns False if its rank's phases must be added anew."""
        self.touched = True
        if event.kind in TRAINER_KINDS:
            return self._add_trainer(event)
        tell(self._told, event)
        if event.kind in PROCESS_KINDS:
            self._live(event.time_ns)
        else:
            self._launcher_first = min(self._launcher_first, event.time_ns)
        return True

    def _add_trainer(self, event: Event) -> bool:
        rank = self.rank(event.rank or 0)
        rank.first_told_ns = min(rank.first_told_ns, event.time_ns)
        self._live(event.time_ns)
        if event.kind in _PHASE_KINDS:
            return rank.lanes.add(event)
        if event.kind in _SAVE_KINDS:
            # A save that is committed at once was saved first.
            insort(
                self.saves,
                event,
                key=lambda e: (e.time_ns, e.kind != Kind.CHECKPOINT_SAVED, order(e)),
            )
            return True
        if event.kind == Kind.INTERVAL:
            for name in ("from", "to"):
                self._live(whole(event.data, name))
        tell(rank.told, event)
        return True

    def _live(self, time: int | None) -> None:
        if time is not None:
            self._first = min(self._first, time)
            self._last = max(self._last, time)

    def of(self, *kinds: Kind) -> list[Event]:
        """Return the events of these kinds, kind by kind; within one the main rank's come first.

        Intervals that could be read and phases are not among them.
        """
        return [event for kind in kinds for event in self._of(kind)]

    def _of(self, kind: Kind) -> Iterator[Event]:
        yield from self._told.get(kind, ())
        for number in sorted(self.ranks):
            yield from self.ranks[number].told.get(kind, ())

    def notes(self) -> Notes:
        """Return what is odd about the intervals and phases."""
        notes: Notes = set()
        for rank in self.ranks.values():
            notes |= rank.lanes.notes()
            if Kind.INTERVAL in rank.told:
                notes.add(f"intervals of attempt {self.id} that cannot be read were skipped")
            if rank.rows.trimmed:
                notes.add(
                    f"intervals of attempt {self.id} have parts that do not sum to their length"
                )
        return notes
