"""The folds of the jobs that one process of the API measures.

Several processes may take events of one job in turn. So each knows how many events of every writer
its fold has, and up to which number, takes in what others have stored since, and makes the fold
again where an event came out of its turn.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, and_, func, or_, select

from airflow_ett.events import Event
from airflow_ett.metric import Components
from airflow_ett.store import tables
from airflow_ett.store.folds import JobFold
from airflow_ett.store.project import load_events

_MOST_EVENTS = 1_000_000
"""In all folds together: about 100 bytes each."""

_AT_ONCE = 100
_event = tables.event.c


class Head(NamedTuple):
    """How many events of a writer there are, and the last one's number."""

    events: int
    seq: int


_NONE = Head(0, -1)


@dataclass(frozen=True, slots=True)
class Kept:
    """A fold, and what of each writer it has taken in."""

    fold: JobFold
    heads: Mapping[str, Head]

    @property
    def events(self) -> int:
        """How many events it has taken in."""
        return sum(head.events for head in self.heads.values())


class KeptFolds:
    """The folds of the jobs that were measured last. A job's is used by one thread at a time."""

    def __init__(self, components: Components, most_events: int | None = None) -> None:
        self._components = components
        self._most_events = most_events or _MOST_EVENTS
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def up_to_date(self, connection: Connection, job: str, open_interval: Event | None) -> Kept:
        """Hand over the job's fold with all that is stored; only ``keep`` brings it back.

        Under the job's lock. ``open_interval`` is what it will be measured with.
        """
        with self._lock:
            kept = self._kept.pop(job, None)
        heads = _heads(connection, job)
        new = None if kept is None else _since(connection, job, kept.heads, heads)
        if kept is None or new is None or not kept.fold.goes_on({}, new, open_interval):
            return Kept(JobFold(job, load_events(connection, job), self._components), heads)
        kept.fold.add(new)
        return Kept(kept.fold, heads)

    def keep(self, kept: Kept) -> None:
        """Keep a fold, once what it has taken in is committed."""
        with self._lock:
            self._kept[kept.fold.job] = kept
            total = sum(one.events for one in self._kept.values())
            while total > self._most_events and len(self._kept) > 1:
                total -= self._kept.popitem(last=False)[1].events


def _heads(connection: Connection, job: str) -> dict[str, Head]:
    columns = (_event.writer, func.count(), func.max(_event.seq))
    rows = connection.execute(select(*columns).where(_event.job == job).group_by(_event.writer))
    return {writer: Head(events, seq) for writer, events, seq in rows}


def _since(
    connection: Connection, job: str, old: Mapping[str, Head], new: Mapping[str, Head]
) -> list[Event] | None:
    """Return the events that make the new heads of the old; None where some came out of turn."""
    grown = [(writer, old.get(writer, _NONE), head) for writer, head in new.items()]
    grown = [(writer, had, head) for writer, had, head in grown if had != head]
    events: list[Event] = []
    for first in range(0, len(grown), _AT_ONCE):
        of = (
            and_(_event.writer == writer, _event.seq > had.seq, _event.seq <= head.seq)
            for writer, had, head in grown[first : first + _AT_ONCE]
        )
        events += load_events(connection, job, or_(*of))
    added = sum(head.events - had.events for _, had, head in grown)
    return events if len(events) == added and set(old) <= set(new) else None
