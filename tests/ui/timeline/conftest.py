"""Measured jobs to draw."""

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Event
from airflow_ett.metric import JobMetric, measure

SECOND = 10**9
BEGIN = 1_796_000_000 * SECOND


class Story:
    """A job's events, written in seconds from its begin. Each method returns the story."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._spans = 0

    def add(
        self, kind: str, time: float, attempt: tuple[int, ...] | None = None, **data: Any
    ) -> "Story":
        trains = kind not in ("job_opened", "submitted", "attempt_ended", "job_ended")
        name = AttemptId(*attempt) if attempt else None
        event = Event(
            job="j",
            writer=f"t{attempt}" if trains else "launcher",
            seq=len(self.events),
            time_ns=self.ns(time),
            kind=kind,
            attempt=name,
            rank=0 if trains else None,
            data=data,
        )
        self.events.append(event)
        return self

    def ns(self, time: float) -> int:
        return BEGIN + round(time * SECOND)

    def open(self) -> "Story":
        key = {"deployment": "default", "dag_id": "ranker", "run_id": "r", "task_id": "train"}
        return self.add("job_opened", 0, key=key, scheduler="local_detached", accelerators=4)

    def submit(self, time: float, number: int, layer: str = "first") -> "Story":
        return self.add("submitted", time, (number,), submission=number, layer=layer)

    def phase(
        self, name: str, begin: float, end: float, attempt: tuple[int, ...], lane: str = "main"
    ) -> "Story":
        self._spans += 1
        self.add("phase_begin", begin, attempt, span=self._spans, phase=name, lane=lane)
        return self.add("phase_end", end, attempt, span=self._spans)

    def step(
        self, begin: float, end: float, cursors: tuple[int, int], attempt: tuple[int, ...]
    ) -> "Story":
        data = {"from": self.ns(begin), "to": self.ns(end), "steps": 1, "wait_ns": 0, "other_ns": 0}
        data |= {"step_ns": self.ns(end) - self.ns(begin)}
        data |= {"cursor_from": cursors[0], "cursor_to": cursors[1]}
        return self.add("interval", end, attempt, **data)

    def save(self, time: float, cursor: int, attempt: tuple[int, ...], *, lost: bool) -> "Story":
        told = {"checkpoint": f"c/{cursor}", "cursor": cursor, "blocking_ns": SECOND}
        self.add("checkpoint_saved", time, attempt, **told)
        if lost:
            return self
        return self.add("checkpoint_committed", time + 5, attempt, **told, upload_ns=5 * SECOND)

    def measure(self, **how: Any) -> JobMetric:
        return measure(self.events, **how)


@pytest.fixture
def story() -> Callable[..., Story]:
    """A job that fails at 400 s with cursor 3000, resumes from 2000, and ends well at 900 s.

    Its second attempt is submitted at 450 s: the failure is known at 420 s.
    """

    def tell(
        *,
        cause: str = "preempted",
        evidence: str = "told",
        layer: str = "relaunch",
        ends: bool = True,
    ) -> Story:
        one, two = (1, 0, 0), (2, 0, 0)
        told = Story().open().submit(0, 1).add("session_started", 20, one, cursor_hwm=0)
        told.phase("first_batch", 30, 60, one).phase("compile", 60, 100, one)
        told.step(100, 200, (0, 1000), one).step(200, 300, (1000, 2000), one)
        told.phase("checkpoint_save", 300, 310, one).save(310, 2000, one, lost=False)
        told.phase("upload", 310, 315, one, lane="upload")
        told.step(310, 400, (2000, 3000), one).save(395, 2900, one, lost=True)
        told.add("failure", 400, one, error={})
        told.add("attempt_ended", 420, one, cause=cause, evidence={"text": evidence})
        told.submit(450, 2, layer).add("session_started", 460, two, cursor_hwm=3000)
        told.add("resumed", 470, two, checkpoint="c/2000", cursor=2000, hwm=3000)
        told.phase("wasted.tokenise", 470, 480, two).phase("mystery", 480, 490, two)
        told.step(500, 600, (2000, 3000), two).step(600, 890, (3000, 6000), two)
        if ends:
            told.add("session_ended", 890, two, outcome="success", cursor=6000)
            told.add("attempt_ended", 900, two, cause=None, evidence={})
            told.add("job_ended", 900, state="succeeded")
        return told

    return tell
