"""The checkpoints of a job, kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import text, whole
from airflow_ett.metric.result import Checkpoint


@dataclass(slots=True)
class _Save:
    attempt: AttemptId
    saved: list[Event] = field(default_factory=list)
    committed: list[Event] = field(default_factory=list)


class _Read(NamedTuple):
    """How far an attempt's events were read: the list, how many, the last of them."""

    events: list[Event]
    length: int
    last: Event


class Saves:
    """The checkpoints in the order of attempts and time.

    A commit belongs to the newest save of its URI, also when a later attempt finished it or named
    it again.
    ``blocking_ns`` is the sum of the blocking times that ``told_blocking`` of them told.
    """

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.rows: list[Checkpoint] = []
        self.blocking_ns = self.told_blocking = 0
        self._saves: list[_Save] = []
        self._newest: dict[str, int] = {}
        self._safest: dict[AttemptId, int] = {}
        self._read: list[_Read] = []

    def update(self, seen: Iterable[Evidence]) -> None:
        """Take what the attempts have told since the last call."""
        told = [(evidence.id, evidence.saves) for evidence in seen if evidence.saves]
        if not self._goes_on([events for _, events in told]):
            self._begin_anew()
        for number, (attempt, events) in enumerate(told):
            known = self._read[number].length if number < len(self._read) else 0
            for event in events[known:]:
                self._take(attempt, event)
        self._read = [_Read(events, len(events), events[-1]) for _, events in told]

    def _goes_on(self, told: list[list[Event]]) -> bool:
        """Say whether all that is new lies behind what was read."""
        last = len(self._read) - 1
        return len(told) > last and all(
            read.events is events
            and events[read.length - 1] is read.last
            and (number == last or len(events) == read.length)
            for number, (read, events) in enumerate(zip(self._read, told, strict=False))
        )

    def safe(self, attempt: AttemptId) -> int | None:
        """Return the cursor of the newest checkpoint that the attempt committed."""
        number = self._safest.get(attempt)
        return None if number is None else self.rows[number].cursor

    def _take(self, attempt: AttemptId, event: Event) -> None:
        uri = text(event.data, "checkpoint")
        if uri is None:
            return
        is_commit = event.kind == Kind.CHECKPOINT_COMMITTED
        number = self._newest.get(uri)
        if number is not None and self._saves[number].attempt != attempt:
            number = number if is_commit else None
        if number is None:
            number = self._newest[uri] = len(self._saves)
            self._saves.append(_Save(attempt))
            self.rows.append(_checkpoint(uri, self._saves[number]))
        save = self._saves[number]
        (save.committed if is_commit else save.saved).append(event)
        old = self.rows[number].blocking_ns
        self.rows[number] = row = _checkpoint(uri, save)
        self.blocking_ns += (row.blocking_ns or 0) - (old or 0)
        self.told_blocking += (row.blocking_ns is not None) - (old is not None)
        self._note_safe(number, row)

    def _note_safe(self, number: int, row: Checkpoint) -> None:
        if row.committed_ns is None or row.cursor is None:
            return
        known = self._safest.get(row.attempt)
        if known is None or row.committed_ns >= (self.rows[known].committed_ns or 0):
            self._safest[row.attempt] = number


def _checkpoint(uri: str, save: _Save) -> Checkpoint:
    both = [*save.committed, *save.saved]
    return Checkpoint(
        uri=uri,
        cursor=_pick(both, "cursor", max),
        saved_ns=max((event.time_ns for event in save.saved), default=None),
        committed_ns=min((event.time_ns for event in save.committed), default=None),
        blocking_ns=_pick(save.saved, "blocking_ns", max),
        upload_ns=_pick(save.committed, "upload_ns", max),
        bytes=_pick(save.committed, "bytes", max),
        anchor=any(event.data.get("anchor") is True for event in both),
        attempt=save.attempt,
    )


def _pick(events: list[Event], name: str, choose: Callable[[list[int]], int]) -> int | None:
    values = [value for event in events if (value := whole(event.data, name)) is not None]
    return choose(values) if values else None
