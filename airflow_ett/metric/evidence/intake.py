"""Each event once, whatever order and copies they come in, and sorted to its attempt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_ett.events import SCHEMA_VERSION, AttemptId, Event, Kind, encode
from airflow_ett.metric.evidence.attempt import (
    PROCESS_KINDS,
    SUBMISSION_KINDS,
    TRAINER_KINDS,
    Evidence,
    Told,
    tell,
)
from airflow_ett.metric.evidence.fields import Notes, order, whole
from airflow_ett.metric.evidence.numbering import Numbering
from airflow_ett.metric.evidence.rows import Rows, read_row

_PROCESS = Kind.PROCESS_STARTED.value
_INTERVAL = Kind.INTERVAL.value


class _Writer:
    """A writer: ``numbers`` are those that were seen, ``closed`` that of its last interval.

    ``kept`` are its events that became no rows; those that did lie in ``shelves``, by attempt and
    rank. ``place`` is where its newest row lies: the next one nearly always goes there, too.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.numbers = Numbering()
        self.closed = -1
        self.kept: dict[int, Event] = {}
        self.shelves: dict[tuple[AttemptId, int], Rows] = {}
        self.place: tuple[AttemptId | None, int | None] | None = None
        self.rows = Rows()
        self.evidence = Evidence(AttemptId(0))

    def lost(self) -> int:
        """Return how many numbers are missing.

        A Session that never ended may hold one number reserved for the interval that is open: it
        lies beyond those of all intervals written.
        """
        missing = self.numbers.missing
        if missing and self.numbers.missing_after(self.closed) and self._is_live():
            missing -= 1
        return missing

    def find(self, seq: int) -> tuple[tuple[AttemptId, int], Rows, int]:
        """Return which row of which shelf the event became."""
        for place, rows in self.shelves.items():
            if (at := rows.find(self.number, seq)) is not None:
                return place, rows, at
        raise KeyError(seq)

    def look_again(self) -> None:
        """Find out anew which rows there are, and which is the last: some were taken out."""
        self.place = None
        self.shelves = {place: rows for place, rows in self.shelves.items() if len(rows)}
        kept = (event.seq for event in self.kept.values() if event.kind == _INTERVAL)
        told = (rows.last_seq(self.number) for rows in self.shelves.values())
        self.closed = max([-1, *kept, *told])

    def _is_live(self) -> bool:
        kinds = [event.kind for event in self.kept.values()]
        return kinds.count(Kind.SESSION_STARTED) > kinds.count(Kind.SESSION_ENDED)


class Intake:
    """One job's events, each once. Of several jobs the one with the smallest id is taken.

    Of two events under one number the later one counts: an open interval that was read before it
    grew is the only honest case. ``told`` are the job's own events by kind, ``newest_ns`` is the
    newest moment that any event tells of; :meth:`arrange` brings both up to date. ``stirred`` says
    that something was added, since a reader set it to False, that no Session told.
    """

    def __init__(self) -> None:
        self.job: str | None = None
        self._clear()
        self._strangers: set[str] = set()

    def _clear(self) -> None:
        self._writers: dict[str, _Writer] = {}
        self._version = SCHEMA_VERSION
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.told: Told = {}
        self.attempts: dict[AttemptId, Evidence] = {}
        self.has_trainer = False
        self.stirred = True
        self.newest_ns = 0
        self._nameless: set[str] = set()
        self._disordered = False

    def add(self, events: Iterable[Event]) -> None:
        """Take events, in any order."""
        writers = self._writers
        for event in events:
            writer = writers.get(event.writer)
            if (
                writer is None
                or event.kind != _INTERVAL
                or event.seq != writer.numbers.next
                or (event.attempt, event.rank) != writer.place
                or event.job != self.job
                or event.extra
                or (row := read_row(event, writer.number)) is None
            ):
                self._take(event)
                writers = self._writers
                continue
            writer.rows.append(row)
            writer.evidence.touched = True
            writer.closed = max(writer.closed, event.seq)
            writer.numbers.add(event.seq)

    def arrange(self) -> None:
        """Bring to its place whatever came out of order."""
        if self._disordered:
            self._gather_anew()
        for evidence in self.attempts.values():
            if evidence.touched:
                for rank in evidence.ranks.values():
                    rank.rows.arrange()
                    self.newest_ns = max(self.newest_ns, rank.rows.latest_ns)

    def notes(self) -> Notes:
        """Return what is missing or was skipped."""
        notes = {
            f"events of kind {kind} that name no attempt were skipped" for kind in self._nameless
        }
        if self._strangers:
            notes.add(f"events of {len(self._strangers)} other jobs were skipped")
        if self._version > SCHEMA_VERSION:
            notes.add(
                f"some events are of schema version {self._version}; what this one, "
                f"{SCHEMA_VERSION}, does not know of them was skipped"
            )
        for writer in self._writers.values():
            if count := writer.lost():
                notes.add(f"events of writer {writer.name} are missing: {count}")
        return notes

    def _take(self, event: Event) -> None:
        if event.job != self.job and not self._is_mine(event.job):
            return
        self._version = max(self._version, event.version)
        writer = self._writers.get(event.writer)
        if writer is None:
            number = len(self._writers)
            writer = self._writers[event.writer] = _Writer(event.writer, number)
        if event.seq not in writer.numbers:
            writer.numbers.add(event.seq)
            if event.kind == _PROCESS:
                writer.numbers.begin(event.seq)
            self._put(writer, event)
        else:
            self._take_again(writer, event)

    def _take_again(self, writer: _Writer, event: Event) -> None:
        kept = writer.kept.get(event.seq)
        if kept is not None:
            if kept == event or _weight(kept, writer) >= _weight(event, writer):
                return
            del writer.kept[event.seq]
            self._disordered = True
        else:
            place, rows, at = writer.find(event.seq)
            row = read_row(event, writer.number) if event.kind == _INTERVAL else None
            if (rows.row(at).time_ns, 1, *place, *rows.row(at)) >= _weight(event, writer):
                return
            if row is not None and _place(event) == place:
                rows.replace(at, row)
                self.attempts[place[0]].touched = True
                return
            rows.remove(at)
            self._disordered = True
        self._put(writer, event)

    def _is_mine(self, job: str) -> bool:
        if self.job is not None:
            self._strangers.add(max(job, self.job))
            if job > self.job:
                return False
            self._clear()
        self.job = job
        return True

    def _put(self, writer: _Writer, event: Event) -> None:
        if event.kind == _INTERVAL:
            writer.closed = max(writer.closed, event.seq)
            place = _place(event)
            row = read_row(event, writer.number)
            if place is not None and row is not None:
                self._shelve(writer, event, place, row)
                return
        writer.kept[event.seq] = event
        if not self._sort_in(event):
            self._disordered = True

    def _shelve(
        self, writer: _Writer, event: Event, place: tuple[AttemptId, int], row: tuple[int, ...]
    ) -> None:
        evidence = self._attempt(place[0])
        rows = evidence.rank(place[1]).rows
        rows.append(row)
        evidence.touched = self.has_trainer = True
        writer.shelves[place] = writer.rows = rows
        writer.evidence, writer.place = evidence, (event.attempt, event.rank)

    def _sort_in(self, event: Event) -> bool:
        """Sort the event to its attempt; returns False where all have to be sorted in anew."""
        kind = event.kind
        self.newest_ns = max(self.newest_ns, event.time_ns)
        trainers = kind in TRAINER_KINDS
        self.has_trainer = self.has_trainer or trainers
        self.stirred = self.stirred or not trainers
        name = event.attempt
        if kind in SUBMISSION_KINDS:
            name = _submission_attempt(event)
        if not trainers and kind not in PROCESS_KINDS:
            tell(self.told, event)
            if kind not in SUBMISSION_KINDS and kind != Kind.ATTEMPT_ENDED:
                return True
        if name is None:
            self._nameless.add(kind)
            return True
        return self._attempt(name).add(event)

    def _attempt(self, name: AttemptId) -> Evidence:
        evidence = self.attempts.get(name)
        if evidence is None:
            evidence = self.attempts[name] = Evidence(name)
            self.stirred = True
        return evidence

    def _gather_anew(self) -> None:
        self._begin_anew()
        for writer in self._writers.values():
            writer.look_again()
            for (name, number), rows in writer.shelves.items():
                self._attempt(name).rank(number, rows)
                self.has_trainer = True
        kept = (event for writer in self._writers.values() for event in writer.kept.values())
        for event in sorted(kept, key=order):
            self._sort_in(event)


def _place(event: Event) -> tuple[AttemptId, int] | None:
    return None if event.attempt is None else (event.attempt, event.rank or 0)


def _weight(event: Event, writer: _Writer) -> tuple[Any, ...]:
    """Return what decides between two events under one number."""
    row, place = read_row(event, writer.number), _place(event)
    if event.kind != _INTERVAL or row is None or place is None:
        return event.time_ns, 0, encode(event)
    return event.time_ns, 1, *place, *row


def _submission_attempt(event: Event) -> AttemptId | None:
    submission = whole(event.data, "submission")
    if submission is None:
        return event.attempt
    return AttemptId(submission, whole(event.data, "restart") or 0)
