"""The main lane of one attempt, partitioned as its evidence comes in.

What lies before the newest interval, and before any open phase, does not change any more by events
that come in order: it is *settled* and packed. The *tail* after it is worked out at each look.
Evidence that reaches behind the settled edge, or a turn of the attempt's life that moves there,
makes the track start over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from airflow_ett.events import AttemptId
from airflow_ett.metric.evidence.attempt import Rank
from airflow_ett.metric.evidence.fields import FOREVER
from airflow_ett.metric.evidence.lanes import Claim
from airflow_ett.metric.evidence.rows import Rows
from airflow_ett.metric.phases import Components, Phase
from airflow_ett.metric.result import Booking
from airflow_ett.metric.timeline.innermost import cut, innermost
from airflow_ett.metric.timeline.partition import Partition
from airflow_ett.metric.timeline.walk import Gain, Mark, Walk

_CHUNK = 512
_PATIENCE = 2000
"""So many rows behind an open phase, it is presumed to have ended where a phase without an end
does; should it end later after all, the track starts over."""


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of an attempt's life before its main lane is partitioned.

    ``rows`` are the main rank's, which leads from ``cut_ns`` on and went on from a checkpoint at
    each of ``resumes``. ``open`` are the leading ranks'
    claims whose end may still move. ``gaps`` cover ``[begin_ns, stop_ns)`` and lose against
    everything. The training loop begins at ``loop_ns``.
    """

    attempt: AttemptId
    begin_ns: int
    stop_ns: int
    hwm: int
    leader: Rank | None
    cut_ns: int
    loop_ns: int
    resumes: tuple[int, ...]
    rows: Rows
    open: tuple[Claim, ...]
    gaps: tuple[Claim, ...]

    def agrees(self, other: Course, until_ns: int) -> bool:
        """Say whether both tell the same of the time before ``until_ns``."""
        return (
            (self.begin_ns, self.hwm, self.leader, self.cut_ns)
            == (other.begin_ns, other.hwm, other.leader, other.cut_ns)
            and self.rows is other.rows
            and _before(self.resumes, until_ns) == _before(other.resumes, until_ns)
            and min(self.loop_ns, until_ns) == min(other.loop_ns, until_ns)
            and cut(self.gaps, 0, until_ns) == cut(other.gaps, 0, until_ns)
        )


def _before(times: Iterable[int], until_ns: int) -> list[int]:
    return [time for time in times if time < until_ns]


class Track:
    """The partition of one attempt's main lane, brought up to date by :meth:`look`.

    ``settled`` and ``tail`` together cover the attempt; ``early_ns`` and ``late_ns`` are the
    extent of all claims, which clocks that disagree may move out of the attempt.
    """

    def __init__(self, components: Components) -> None:
        self._components = components
        self._course: Course | None = None
        self._mark: Mark | None = None

    def look(
        self, course: Course, fresh: list[Claim], closed: Callable[[], Iterable[Claim]]
    ) -> None:
        """Bring the partition up to date.

        ``fresh`` are the claims that got their end since the last look, ``closed`` returns all.
        """
        before, self._course = self._course, course
        self.rows = course.rows
        if before is not None and self._mark is not None and self._goes_on(before, course, fresh):
            self.walk.return_to(self._mark)
        else:
            self._start(course)
            fresh = [*closed()]
        self.walk.resumes = course.resumes
        for claim in fresh:
            self._enqueue(claim)
        self._settle(course, self._limit(course))
        course.rows.stable = len(course.rows)
        self._mark = self.walk.mark()
        self._follow_tail(course)

    def _goes_on(self, before: Course, course: Course, fresh: list[Claim]) -> bool:
        edge = self.settled.end_ns
        moving = [claim for claim in course.open if claim not in self._presumed]
        return (
            course.rows.stable >= self._at
            and course.rows.begin_ns(self._at) >= edge
            and all(claim.begin_ns >= edge for claim in (*fresh, *moving))
            and self._presumed.issubset(course.open)
            and before.agrees(course, edge)
        )

    def _start(self, course: Course) -> None:
        self.walk = Walk(course.attempt, course.hwm)
        self.settled = Partition(course.begin_ns)
        self._early_ns = self._late_ns = course.begin_ns
        self._at = 0
        self._queue: list[Claim] = []
        self._presumed: set[Claim] = set()

    def _enqueue(self, claim: Claim) -> None:
        if claim.begin_ns < claim.end_ns:
            heappush(self._queue, claim)
            self._widen([claim])

    def _widen(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._early_ns = min(self._early_ns, claim.begin_ns)
            self._late_ns = max(self._late_ns, claim.end_ns)

    def _limit(self, course: Course) -> int:
        """Return how far the track may settle."""
        rows = course.rows
        newest = len(rows) - 1
        limit = min(rows.begin_ns(newest), course.stop_ns) if newest >= self._at else 0
        moving = [claim for claim in course.open if claim not in self._presumed]
        first = min((claim.begin_ns for claim in moving), default=limit)
        if first < limit and newest - rows.before(first) > _PATIENCE:
            over = {claim for claim in moving if claim.end_ns <= limit}
            self._presumed |= over
            for claim in over:
                self._enqueue(claim)
            first = min((claim.begin_ns for claim in moving if claim not in over), default=limit)
        return min(first, limit)

    def _settle(self, course: Course, limit: int) -> None:
        while True:
            row_ns, claim_ns = course.rows.begin_ns(self._at), self._claim_ns()
            if min(row_ns, claim_ns) >= limit:
                return
            until = min(claim_ns, limit)
            if row_ns < until and self._stride(course, until):
                continue
            if not self._settle_cluster(course, limit):
                return

    def _claim_ns(self) -> int:
        return self._queue[0].begin_ns if self._queue else FOREVER

    def _stride(self, course: Course, until_ns: int) -> int:
        """Book rows on new data that lie apart from each other and all claims; return how many."""
        walk, settled = self.walk, self.settled
        wait_key, train_key, other_key = (
            self._key(settled, phase, course.loop_ns)
            for phase in (Phase.DATA_WAIT, Phase.TRAIN, Phase.LOOP_OTHER)
        )
        earliest = max(settled.end_ns, course.cut_ns)
        end = min(course.rows.before(until_ns), self._at + _CHUNK)
        run = course.rows.run(self._at, end) if end - self._at > 1 else None
        if run is not None and earliest <= run.begins_ns[0]:
            last_ns = min(until_ns, course.rows.begin_ns(end))
            if run.ends_ns[-1] <= last_ns and walk.advance_run(run):
                if run.begins_ns[0] > settled.end_ns:
                    self._book(settled, (), run.begins_ns[0])
                settled.book(run.ends_ns[-1], train_key)
                return self._took(end - self._at)
        taken = 0
        for row, following in pairwise(course.rows.between(self._at, end + 1)):
            begin, stop, step, wait = row[0], row[1], row[5], row[6]
            apart = earliest <= begin and stop <= following[0] and stop <= until_ns
            if not apart or not walk.advance(row):
                break
            if begin > settled.end_ns:
                self._book(settled, (), begin)
            if wait:
                settled.book(begin + wait, wait_key)
            if step:
                settled.book(begin + wait + step, train_key)
            if stop > settled.end_ns:
                settled.book(stop, other_key)
            taken += 1
        return self._took(taken)

    def _took(self, count: int) -> int:
        self._at += count
        self._late_ns = max(self._late_ns, self.settled.end_ns)
        return count

    def _settle_cluster(self, course: Course, limit: int) -> bool:
        """Book the claims that come next and overlap; False where they reach beyond the limit.

        A fragment goes with the row that ends its step.
        """
        at, claims, fragment = self._at, list[Claim](), False
        begin = stop = min(course.rows.begin_ns(at), self._claim_ns())
        while True:
            row_ns, claim_ns = course.rows.begin_ns(at), self._claim_ns()
            if fragment and row_ns == FOREVER:
                stop = FOREVER
                break
            if fragment or row_ns < stop or row_ns == begin:
                row = course.rows.row(at)
                at, fragment, stop = at + 1, row.fragment, max(stop, row.end_ns)
            elif claim_ns < stop or claim_ns == begin:
                claims.append(heappop(self._queue))
                stop = max(stop, claims[-1].end_ns)
            else:
                break
        if stop > limit:
            for claim in claims:
                heappush(self._queue, claim)
            return False
        steps, gains = self._step(course, self._at, at)
        self._widen(steps)
        self._at = at
        self._book(self.settled, claims + steps, stop, gains)
        return True

    def _follow_tail(self, course: Course) -> None:
        moving = [claim for claim in course.open if claim not in self._presumed]
        steps, gains = self._step(course, self._at, len(course.rows))
        claims = self._queue + moving + steps
        self.early_ns = min([self._early_ns, *(claim.begin_ns for claim in claims)])
        self.late_ns = max([self._late_ns, *(claim.end_ns for claim in claims)])
        self.tail = Partition(self.settled.end_ns)
        self._book(self.tail, claims, course.stop_ns, gains)

    def _step(self, course: Course, first: int, end: int) -> tuple[list[Claim], list[Gain]]:
        claims, gains = self.walk.take(course.rows.between(first, end))
        return cut(claims, course.cut_ns, FOREVER), gains

    def _book(
        self,
        partition: Partition,
        claims: Iterable[Claim],
        stop_ns: int,
        gains: Iterable[Gain] = (),
    ) -> None:
        """Book the time up to ``stop_ns``: to the innermost claim, else to the gap's name."""
        assert self._course is not None
        inner = innermost(cut([*claims, *self._course.gaps], partition.end_ns, stop_ns))
        for claim in inner:
            partition.book(claim.end_ns, self._key(partition, claim.phase, claim.begin_ns))
        self.walk.gain(gains, inner)

    def _key(self, partition: Partition, phase: str, begin_ns: int) -> int:
        assert self._course is not None
        in_loop = begin_ns >= self._course.loop_ns
        component = self._components.of(phase, in_loop=in_loop)
        return partition.key(Booking(str(phase), component))
