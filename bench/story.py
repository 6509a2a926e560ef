"""The same training told to the metric and to ml-goodput-measurement: what bench/metric.py asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, NamedTuple

from airflow_ett.events import AttemptId, Event, Kind

SECOND = 1_000_000_000
BEGIN = 1_700_000_000 * SECOND
START_UP = 30 * SECOND
OUTAGE = 100 * SECOND
PAUSE = SECOND // 2
REPEATED = 13


class Job(NamedTuple):
    """Steps of 1 to 1.1 s, restarts among them, and a pause after each so many steps."""

    steps: int
    restarts: int = 0
    pause_every: int = 0

    @property
    def pauses(self) -> int:
        return self.steps // self.pause_every if self.pause_every else 0

    @property
    def entries(self) -> int:
        """How many entries tell it to the peer."""
        return self.steps + self.restarts + 1 + 2 * self.pauses

    def events(self, coalesced: int) -> int:
        """How many events tell it to us."""
        return 1 + 2 * (self.restarts + 1) + self.steps // coalesced + 2 * self.pauses


class Step(NamedTuple):
    """One step; ``started_ns`` is when its attempt began, ``pause`` whether one follows it."""

    attempt: int
    started_ns: int
    number: int
    begin_ns: int
    end_ns: int
    pause: bool


def steps(job: Job) -> Iterator[Step]:
    """Tell the job's steps, and go on without an end; a restart repeats some."""
    life = job.steps // (job.restarts + 1)
    at, number, attempt, started = BEGIN, 0, 0, BEGIN
    for step in count():
        if step % life == 0 and attempt <= job.restarts:
            started = at + (OUTAGE if attempt else 0)
            number -= REPEATED if attempt else 0
            at, attempt = started + START_UP, attempt + 1
        end = at + SECOND + step * 7919 % 100 * SECOND // 1000
        pause = bool(job.pause_every) and step % job.pause_every == job.pause_every - 1
        yield Step(attempt, started, number, at, end, pause)
        at, number = end + (PAUSE if pause else 0), number + 1


def entries(job: Job) -> Iterator[dict[str, Any]]:
    """The job as the peer's recorder would log it, without an end."""
    attempt = 0
    for step in steps(job):
        if step.attempt != attempt:
            attempt = step.attempt
            yield {"job_name": "bench", "job_start_time": step.started_ns / SECOND}
        begin = step.begin_ns / SECOND
        yield {"job_name": "bench", "step_count": step.number, "step_start_time": begin}
        if step.pause:
            for edge, at in (("start", step.end_ns), ("end", step.end_ns + PAUSE)):
                name = f"custom_badput_event_{edge}_time"
                yield {"job_name": "bench", "custom_badput_event_type": "eval", name: at / SECOND}


class Log:
    """Numbers events as a launcher and a Session would."""

    def __init__(self) -> None:
        self._seq: Counter[str] = Counter()

    def event(self, kind: Kind, at: int, data: dict[str, Any], attempt: int) -> Event:
        rank = None if kind in (Kind.JOB_OPENED, Kind.SUBMITTED) else 0
        writer = "launcher" if rank is None else f"trainer-{attempt}"
        self._seq[writer] += 1
        seq = self._seq[writer] - 1
        return Event("bench", writer, seq, at, kind, AttemptId(attempt), rank, data)

    def interval(self, first: Step, last: Step) -> Event:
        data = {
            "from": first.begin_ns,
            "to": last.end_ns,
            "cursor_from": first.number,
            "cursor_to": last.number + 1,
            "steps": last.number + 1 - first.number,
            "step_ns": last.end_ns - first.begin_ns,
            "wait_ns": 0,
            "other_ns": 0,
        }
        return self.event(Kind.INTERVAL, last.end_ns, data, last.attempt)


def events(job: Job, coalesced: int) -> Iterator[Event]:
    """The job as our log, without an end, with so many steps in an interval."""
    log = Log()
    attempt = 0
    for run in batched(steps(job), coalesced):
        first, last = run[0], run[-1]
        if first.attempt != attempt:
            if not attempt:
                yield log.event(Kind.JOB_OPENED, BEGIN, {"scheduler": "local"}, 1)
            submitted = {"submission": first.attempt, "layer": "relaunch" if attempt else "first"}
            attempt = first.attempt
            yield log.event(Kind.SUBMITTED, first.started_ns, submitted, attempt)
            yield log.event(Kind.SESSION_STARTED, first.started_ns, {}, attempt)
        yield log.interval(first, last)
        if last.pause:
            span = {"span": f"s{last.end_ns}", "phase": "evaluation", "lane": "main"}
            yield log.event(Kind.PHASE_BEGIN, last.end_ns, span, attempt)
            yield log.event(Kind.PHASE_END, last.end_ns + PAUSE, span, attempt)


def batched(told: Iterator[Step], size: int) -> Iterator[list[Step]]:
    while run := list(islice(told, size)):
        yield run
