"""Step time against the high-water mark: which of it trained on new data, which repeated."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from airflow_ett.events import AttemptId, Kind
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import Notes, whole
from airflow_ett.metric.evidence.lanes import Claim
from airflow_ett.metric.evidence.rows import Row, Run
from airflow_ett.metric.phases import Phase


class Trained:
    """First-time training, piece by piece: from one cursor to another, and for how long."""

    def __init__(self) -> None:
        self._froms = array("q")
        self._tos = array("q")
        self._sums = array("q")

    def __len__(self) -> int:
        return len(self._tos)

    def add(self, cursor_from: int, cursor_to: int, ns: int) -> None:
        """Take the next piece."""
        self._froms.append(cursor_from)
        self._tos.append(cursor_to)
        self._sums.append(self.ns + ns)

    def extend(self, cursors_from: Iterable[int], tos: Iterable[int], ns: Iterable[int]) -> None:
        """Take many pieces."""
        self._froms.extend(cursors_from)
        self._tos.extend(tos)
        self._sums.extend(islice(accumulate(ns, initial=self.ns), 1, None))

    def shorten(self, count: int) -> None:
        """Keep the first ``count`` pieces."""
        for column in (self._froms, self._tos, self._sums):
            del column[count:]

    @property
    def ns(self) -> int:
        """Its length in all."""
        return self._sums[-1] if self._sums else 0

    def straddles(self, cursor: int) -> bool:
        """Say whether the cursor lies within a piece."""
        at = bisect_right(self._tos, cursor)
        return at < len(self) and self._froms[at] < cursor

    def until(self, cursor: int) -> int:
        """Return how much of it lies below ``cursor``; a piece across it is cut pro rata."""
        at = bisect_right(self._tos, cursor)
        before = self._sums[at - 1] if at else 0
        if at == len(self) or self._froms[at] >= cursor:
            return before
        beyond = self._tos[at] - cursor
        piece = self._sums[at] - before
        return before + piece - piece * beyond // (self._tos[at] - self._froms[at])


class Gain(NamedTuple):
    """Training on new data: from one cursor to another, and the begins of the rows that tell it."""

    cursor_from: int
    cursor_to: int
    begins_ns: tuple[int, ...]


class Mark(NamedTuple):
    """How far a walk has come."""

    hwm: int
    cursor_from: int | None
    cursor_to: int | None
    advance_ns: int | None
    last_step_ns: int | None
    progress_ns: int | None
    last_begin_ns: int
    trained: int
    notes: frozenset[str]


class Walk:
    """What the rows of one attempt say, walked through in order.

    ``hwm`` is the high-water mark, ``advance_ns`` A, the end of the first step that passed it,
    ``last_step_ns`` the end of the last step, ``progress_ns`` that of the last one that trained on
    new data; None where there was none. ``resumes`` are the times at which the rank went on from a
    checkpoint: there the cursor may go back.
    """

    def __init__(self, attempt: AttemptId, hwm: int) -> None:
        self._attempt = attempt
        self.hwm = hwm
        self.trained = Trained()
        self.resumes: Sequence[int] = ()
        self._last_begin_ns = 0
        self.cursor_from: int | None = None
        self.cursor_to: int | None = None
        self.advance_ns: int | None = None
        self.last_step_ns: int | None = None
        self.progress_ns: int | None = None
        self.notes: Notes = set()

    def mark(self) -> Mark:
        """Remember how far it has come."""
        return Mark(
            self.hwm,
            self.cursor_from,
            self.cursor_to,
            self.advance_ns,
            self.last_step_ns,
            self.progress_ns,
            self._last_begin_ns,
            len(self.trained),
            frozenset(self.notes),
        )

    def return_to(self, mark: Mark) -> None:
        """Go back to where it was."""
        self.hwm, self.cursor_from, self.cursor_to = mark[:3]
        self.advance_ns, self.last_step_ns, self.progress_ns = mark[3:6]
        self._last_begin_ns = mark.last_begin_ns
        self.trained.shorten(mark.trained)
        self.notes = set(mark.notes)

    def take(self, rows: Iterable[tuple[int, ...]]) -> tuple[list[Claim], list[Gain]]:
        """Return the claims of each row's parts, and where training advanced.

        :meth:`gain` wants to know what became of these claims.

        A fragment belongs to the step that the next row ends. Within a row the parts lie in the
        order data_wait, replay, train, loop_other: exact for one step, a convention for many.
        """
        claims: list[Claim] = []
        gains: list[Gain] = []
        fragments: list[Row] = []
        for cells in rows:
            row = Row(*cells)
            self._follow(row)
            if row.fragment:
                fragments.append(row)
            else:
                claims += self._book(row, fragments, gains)
                fragments = []
        for fragment in fragments:
            claims += _parts(fragment, 0, Phase.LOOP_OTHER)
        return claims, gains

    def gain(self, gains: Iterable[Gain], inner: Sequence[Claim]) -> None:
        """Add the first-time training; of each only the part that no inner claim took counts.

        ``inner`` are the claims that won, disjoint.
        """
        by_begin: Counter[int] = Counter()
        for claim in inner:
            if claim.phase == Phase.TRAIN:
                by_begin[claim.opened_ns] += claim.end_ns - claim.begin_ns
        for gain in gains:
            ns = sum(by_begin.pop(begin, 0) for begin in gain.begins_ns)
            self.trained.add(gain.cursor_from, gain.cursor_to, ns)

    def advance(self, row: tuple[int, ...]) -> bool:
        """Take a row of whole steps on new data; False, and nothing taken, if it is another."""
        begin, _, low, high, steps, step, wait, flags, *_ = row
        if (
            self.advance_ns is None
            or not steps
            or flags
            or not (self.hwm <= low < high and (self.cursor_to or 0) <= low)
        ):
            return False
        self.trained.add(low, high, step)
        self.hwm = self.cursor_to = high
        self.last_step_ns = self.progress_ns = begin + wait + step
        self._last_begin_ns = begin
        return True

    def advance_run(self, run: Run) -> bool:
        """Take a run of rows as :meth:`advance` takes each."""
        low = run.cursors_from[0]
        if self.advance_ns is None or max(self.hwm, self.cursor_to or 0) > low:
            return False
        self.trained.extend(run.cursors_from, run.cursors_to, run.step_ns)
        self.hwm = self.cursor_to = run.cursors_to[-1]
        self.last_step_ns = self.progress_ns = run.ends_ns[-1]
        self._last_begin_ns = run.begins_ns[-1]
        return True

    def _follow(self, row: Row) -> None:
        if self.cursor_to is not None and row.cursor_from < self.cursor_to:
            since = self._last_begin_ns
            if not any(since <= time <= row.end_ns for time in self.resumes):
                self.notes.add(f"cursor_reset: the cursor of attempt {self._attempt} went back")
        self._last_begin_ns = row.begin_ns
        if self.cursor_from is None:
            self.cursor_from = row.cursor_from
        self.cursor_to = max(self.cursor_to or 0, row.cursor_to)

    def _book(self, row: Row, fragments: list[Row], gains: list[Gain]) -> list[Claim]:
        if not row.steps and not row.step_ns:
            # It ends no step: fragments before it are of a step that was given up.
            self.hwm = max(self.hwm, row.cursor_to)
            parts = (_parts(part, 0, Phase.LOOP_OTHER) for part in (*fragments, row))
            return [claim for claims in parts for claim in claims]
        steps = max(row.steps, 1)
        old = _steps_below(row, steps, self.hwm)
        replay = row.step_ns * old // steps
        name = Phase.REPLAY if old else Phase.TRAIN
        claims = [claim for fragment in fragments for claim in _parts(fragment, 0, name)]
        claims += _parts(row, replay, Phase.TRAIN)
        self.last_step_ns = row.begin_ns + row.wait_ns + row.step_ns
        if old < steps:
            known = max(row.cursor_from, self.hwm)
            mine = [row] if old else [*fragments, row]
            gains.append(Gain(known, row.cursor_to, tuple(one.begin_ns for one in mine)))
            self._advance(row, steps, old)
        return claims

    def _advance(self, row: Row, steps: int, old: int) -> None:
        replay = row.step_ns * old // steps
        train = row.step_ns - replay
        if old:
            self.notes.add(
                f"attempt {self._attempt}: a step count that crosses the high-water mark was split"
            )
        if self.advance_ns is None:
            self.advance_ns = row.begin_ns + row.wait_ns + replay + train // (steps - old)
            if steps - old > 1:
                self.notes.add(
                    f"attempt {self._attempt}: the end of its first new step is an estimate"
                )
        self.progress_ns = self.last_step_ns
        self.hwm = row.cursor_to


def known_hwm(evidence: Evidence, hwm: int) -> int:
    """Return the high-water mark that the Sessions knew at first, if it is above ``hwm``.

    They may know more than the intervals tell: the cursor file outlives a lost log line. What one
    says once the main rank's steps have begun counts their own progress and is left out.
    """
    main = evidence.main_rank
    steps_ns = None if main is None else evidence.ranks[main].first_step_ns
    for event in evidence.of(Kind.SESSION_STARTED, Kind.RESUMED):
        if steps_ns is None or event.time_ns <= steps_ns:
            names = ("cursor_hwm",) if event.kind == Kind.SESSION_STARTED else ("hwm", "cursor")
            hwm = max([hwm, *(whole(event.data, name) or 0 for name in names)])
    return hwm


def _steps_below(row: Row, steps: int, hwm: int) -> int:
    """Return how many of the steps end at or below the high-water mark."""
    if row.cursor_to <= hwm:
        return steps
    if row.cursor_from >= hwm:
        return 0
    span = row.cursor_to - row.cursor_from
    return (hwm - row.cursor_from) * steps // span


def _parts(row: Row, replay_ns: int, phase: str) -> list[Claim]:
    claims = []
    at = row.begin_ns
    for name, length in (
        (Phase.DATA_WAIT, row.wait_ns),
        (Phase.REPLAY, replay_ns),
        (phase, row.step_ns - replay_ns),
        (Phase.LOOP_OTHER, row.end_ns - row.begin_ns - row.wait_ns - row.step_ns),
    ):
        if length:
            claims.append(Claim(at, at + length, name, row.begin_ns))
        at += length
    return claims
