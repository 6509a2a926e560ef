"""What of the training was saved, lost or is at risk; and the compilations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from airflow_ett.events import AttemptId, Kind
from airflow_ett.metric.account.saves import Saves
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import text, whole
from airflow_ett.metric.evidence.lanes import MAIN
from airflow_ett.metric.result import Compile
from airflow_ett.metric.timeline.trace import Timeline
from airflow_ett.metric.timeline.walk import Trained, Walk


def compiles(evidence: Evidence) -> list[Compile]:
    """Return the attempt's compilations in order of time. The event stands at one's end."""
    found = []
    for event in evidence.of(Kind.COMPILE):
        duration = whole(event.data, "duration_ns") or 0
        found.append(
            Compile(
                id=text(event.data, "id"),
                attempt=evidence.id,
                begin_ns=max(0, event.time_ns - duration),
                duration_ns=duration,
                hits=whole(event.data, "hits"),
                misses=whole(event.data, "misses"),
                reason=text(event.data, "reason"),
                lane=text(event.data, "lane") or MAIN,
            )
        )
    return sorted(found, key=lambda row: (row.begin_ns, row.id or ""))


_Kept = tuple[Trained, int | None]
"""What an attempt trained, and up to which cursor it is still there (None: all of it)."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """From where an attempt went on: a checkpoint's URI, if any, and the cursor."""

    uri: str | None
    cursor: int | None


def resumed(evidence: Evidence, walk: Walk) -> Resumed:
    """Return from where the attempt went on; nothing is known of one that died before it did."""
    for event in evidence.of(Kind.RESUMED):
        cursor = whole(event.data, "cursor")
        return Resumed(
            text(event.data, "checkpoint"), walk.cursor_from if cursor is None else cursor
        )
    return Resumed(None, walk.cursor_from)


class Unsaved:
    """First-time training that is gone (UTT), found attempt by attempt.

    It is what lies beyond the cursor from which an attempt really went on. A piece is lost once:
    ``lost`` has it by the number of the attempt that was interrupted last before, in ns. ``split``
    says that such a cursor lay within an interval of many steps, which was cut pro rata.
    """

    def __init__(self) -> None:
        self.lost: Counter[int] = Counter()
        self.split = False
        self._kept: list[_Kept] = []
        self._resumed: list[tuple[AttemptId, int | None]] = []
        self._loser = 0

    def copy(self) -> Unsaved:
        """Return the same, to go on with on its own."""
        other = Unsaved()
        other.lost, other.split = self.lost.copy(), self.split
        other._kept, other._resumed = self._kept.copy(), self._resumed.copy()
        other._loser = self._loser
        return other

    def take(self, number: int, timeline: Timeline) -> None:
        """Take the attempt ``number``."""
        attempt = timeline.attempt
        cursor = resumed(attempt.evidence, timeline.walk).cursor
        if cursor is not None and (lost := _drop(self._kept, cursor)):
            self.lost[self._loser] += lost
            self.split = self.split or any(one.straddles(cursor) for one, _ in self._kept[-1:])
        self._resumed.append((attempt.id, cursor))
        self._kept.append((timeline.walk.trained, None))
        if attempt.interruption_ns is not None:
            self._loser = number

    def at_risk_ns(self, saves: Saves) -> int:
        """Return the first-time training beyond the newest committed checkpoint."""
        for attempt, cursor in reversed(self._resumed):
            committed = saves.safe(attempt)
            safe = cursor if committed is None else committed
            if safe is not None:
                return _drop(self._kept.copy(), safe)
        return _drop(self._kept.copy(), 0)


def _drop(kept: list[_Kept], cursor: int) -> int:
    """Take away what was trained beyond ``cursor``, and return how long that took."""
    time = 0
    while kept:
        trained, limit = kept.pop()
        held = trained.ns if limit is None else trained.until(limit)
        left = min(held, trained.until(cursor))
        time += held - left
        if left:
            kept.append((trained, cursor if limit is None else min(limit, cursor)))
            break
    return time
