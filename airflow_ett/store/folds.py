"""Folds that a store keeps between ingests, so that a poll costs what is new, not the job's length.

A fold may go on only if it has taken in exactly what the database holds of the job. That is so if

- the job's sources are read exactly as far as they were when the fold was kept: whoever adds events
  moves an offset in the same transaction, and both stand under the job's lock;
- the database took each of the new events as new: otherwise somebody stored some of them before,
  from another file, or without an offset since they could not be measured; and
- the open interval measured with the last time has made way for itself, grown, or for the event
  stored under its number: it never was stored, and would stay in the fold for ever. Of two events
  under one number a fold takes the later.

Else the fold is made again from the stored events. One that takes part in a transaction is out of
reach until the commit, so that what was rolled back is in no fold that is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_ett.events import Event, Kind
from airflow_ett.metric import Components, Fold, JobMetric

_MOST = 4
"""A watcher has one job; who walks over many runs through them faster than a fold is worth."""


class JobFold:
    """The fold of one job, and what of the job it has taken in."""

    def __init__(self, job: str, events: Iterable[Event], components: Components) -> None:
        self.job = job
        self.submitted: list[Event] = []
        self._fold = Fold(components=components)
        self._offsets: Mapping[str, int] = {}
        self._open: Event | None = None
        self.add(events)

    def add(self, events: Iterable[Event]) -> None:
        """Take in stored events."""
        self._fold.add(self._noted(events))

    def goes_on(
        self, offsets: Mapping[str, int], new: Sequence[Event], open_interval: Event | None
    ) -> bool:
        """Say whether what is stored are the events taken in so far and the ``new`` ones.

        ``offsets`` is how far the sources had been read before.
        """
        old = self._open
        heirs = [*new, open_interval]
        open_ = old is not None and not any(heir and _replaces(heir, old) for heir in heirs)
        return self._offsets == offsets and not open_

    def measure(
        self, open_interval: Event | None, *, now_ns: int, last_sign_ns: int | None
    ) -> JobMetric:
        """Return the job's numbers with what its trainer has not closed yet."""
        self._open = open_interval
        if open_interval is not None:
            self._fold.add([open_interval])
        return self._fold.measure(now_ns=now_ns, last_sign_ns=last_sign_ns)

    def read_up_to(self, offsets: Mapping[str, int]) -> None:
        """Note how far the sources are read with the events taken in."""
        self._offsets = offsets

    def _noted(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if event.kind == Kind.SUBMITTED:
                self.submitted.append(event)
            yield event


class Folds:
    """The folds of the few jobs that were ingested last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, JobFold] = OrderedDict()

    def take(self, job: str) -> JobFold | None:
        """Hand over the job's fold, None if there is none; only ``keep`` brings it back."""
        return self._kept.pop(job, None)

    def keep(self, fold: JobFold) -> None:
        """Keep a fold, once what it has taken in is committed."""
        self._kept[fold.job] = fold
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)


def _replaces(event: Event, old: Event) -> bool:
    same = (event.writer, event.seq) == (old.writer, old.seq)
    return same and (event == old or event.time_ns > old.time_ns)
