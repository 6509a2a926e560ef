"""One job of a peer's, written as events of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_ett.events import AttemptId, Event, JobKey, Kind, Layer


class Retelling:
    """Makes a job's events under one writer. Times are UTC ns, cursors steps: step n moves n to
    n + 1.

    ``attempt`` is the number of the newest attempt, 0 before the first.
    """

    def __init__(self, peer: str, name: str) -> None:
        self._peer = peer
        self._key = JobKey(peer, name, "imported", "train")
        self._seq = 0
        self._spans = 0
        self.attempt = 0

    def event(
        self,
        kind: Kind,
        time_ns: int,
        data: Mapping[str, Any] | None = None,
        *,
        attempt: int | None = None,
        rank: int | None = None,
    ) -> Event:
        """Return the next event, of the newest attempt unless ``attempt`` says another; 0: none."""
        number = self.attempt if attempt is None else attempt
        event = Event(
            job=self._key.id,
            writer=f"import-{self._peer}",
            seq=self._seq,
            time_ns=time_ns,
            kind=kind,
            attempt=AttemptId(number) if number else None,
            rank=rank,
            data=data or {},
        )
        self._seq += 1
        return event

    def submit(self, time_ns: int) -> Iterator[Event]:
        """Begin an attempt. Without Airflow there is one try, so a further one is a relaunch."""
        self.attempt += 1
        layer = Layer.FIRST if self.attempt == 1 else Layer.RELAUNCH
        if layer is Layer.FIRST:
            key = {name: getattr(self._key, name) for name in JobKey.__slots__}
            opened = {"key": key, "scheduler": self._peer}
            yield self.event(Kind.JOB_OPENED, time_ns, opened, attempt=0)
        data = {"submission": self.attempt, "layer": layer.value}
        yield self.event(Kind.SUBMITTED, time_ns, data)

    def session(self, time_ns: int) -> Event:
        """The trainer is there."""
        return self.event(Kind.SESSION_STARTED, time_ns, rank=0)

    def begin_phase(self, phase: str, time_ns: int, lane: str = "main") -> Event:
        """Open a phase; its span is the event's own."""
        self._spans += 1
        data = {"span": f"s{self._spans}", "phase": phase, "lane": lane}
        return self.event(Kind.PHASE_BEGIN, time_ns, data, rank=0)

    def end_phase(self, begun: Event, time_ns: int) -> Event:
        """Close the phase that ``begun`` opened."""
        return self.event(Kind.PHASE_END, time_ns, {"span": begun.data["span"]}, rank=0)

    def interval(
        self,
        begin_ns: int,
        end_ns: int,
        cursors: tuple[int, int],
        *,
        fragment: bool = False,
        attempt: int | None = None,
    ) -> Event:
        """Steps that moved the cursor, or the ``fragment`` of one that stood still."""
        data: dict[str, Any] = {
            "from": begin_ns,
            "to": end_ns,
            "cursor_from": cursors[0],
            "cursor_to": cursors[1],
            "steps": cursors[1] - cursors[0],
            "step_ns": end_ns - begin_ns,
            "wait_ns": 0,
            "other_ns": 0,
        }
        if fragment:
            data["fragment"] = True
        return self.event(Kind.INTERVAL, end_ns, data, attempt=attempt, rank=0)

    def end(self, time_ns: int, state: str, cause: str | None) -> Iterator[Event]:
        """End the newest attempt and the job."""
        yield self.event(Kind.ATTEMPT_ENDED, time_ns, {"cause": cause})
        yield self.event(Kind.JOB_ENDED, time_ns, {"state": state, "cause": cause}, attempt=0)
