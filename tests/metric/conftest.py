"""A history written by hand: times in seconds, events as their writers would put them."""

from __future__ import annotations

import runpy
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric import JobMetric, Span, measure
from airflow_ett.metric.result import Lane

SECOND = 1_000_000_000
JOB = "0123456789abcdef0123"
KEY = {
    "deployment": "prod",
    "dag_id": "ranker",
    "run_id": "run",
    "task_id": "train",
    "map_index": -1,
    "generation": 1,
}


def ns(seconds: float) -> int:
    return round(seconds * SECOND)


class History:
    """Collects events; every method takes times in seconds and returns the history."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._seq: Counter[str] = Counter()
        self._span = 0

    def add(
        self,
        kind: str,
        time: float,
        data: dict[str, Any] | None = None,
        *,
        attempt: tuple[int, ...] | None = None,
        rank: int | None = None,
        writer: str = "",
    ) -> History:
        writer = writer or ("launcher" if rank is None else f"trainer-{attempt}-r{rank}")
        event = Event(
            job=JOB,
            writer=writer,
            seq=self._seq[writer],
            time_ns=ns(time),
            kind=kind,
            attempt=None if attempt is None else AttemptId(*attempt),
            rank=rank,
            data=data or {},
        )
        self._seq[writer] += 1
        self.events.append(event)
        return self

    def open(self, scheduler: str = "slurm", hwm: int | None = None) -> History:
        inherit = None if hwm is None else {"checkpoint": "file:///old", "hwm": hwm}
        data = {"key": KEY, "scheduler": scheduler, "accelerators": 8, "inherit": inherit}
        return self.add(Kind.JOB_OPENED, 0, data)

    def submit(
        self, time: float, number: int = 1, layer: str = "first", try_number: int = 1
    ) -> History:
        data = {
            "submission": number,
            "handle": f"slurm://s/{number}",
            "layer": layer,
            "try": try_number,
        }
        return self.add(Kind.SUBMITTED, time, data, attempt=(number,))

    def state(
        self, time: float, number: int = 1, restart: int = 0, state: str = "RUNNING", **times: float
    ) -> History:
        data = {"submission": number, "restart": restart, "state": state, "raw": state}
        data |= {f"{name}_ns": ns(value) for name, value in times.items()}
        return self.add(Kind.SCHEDULER_STATE, time, data)

    def session(
        self,
        process: float,
        session: float,
        attempt: tuple[int, ...] = (1, 0, 0),
        rank: int = 0,
        hwm: int = 0,
    ) -> History:
        self.add(Kind.PROCESS_STARTED, process, {"host": "n1"}, attempt=attempt, rank=rank)
        return self.add(
            Kind.SESSION_STARTED, session, {"cursor_hwm": hwm}, attempt=attempt, rank=rank
        )

    def phase(
        self,
        name: str,
        begin: float,
        end: float | None,
        attempt: tuple[int, ...] = (1, 0, 0),
        *,
        rank: int = 0,
        lane: str = "main",
    ) -> History:
        self._span += 1
        data = {"span": f"s{self._span}", "phase": name, "lane": lane}
        self.add(Kind.PHASE_BEGIN, begin, data, attempt=attempt, rank=rank)
        if end is not None:
            self.add(Kind.PHASE_END, end, {"span": data["span"]}, attempt=attempt, rank=rank)
        return self

    def steps(
        self,
        begin: float,
        end: float,
        cursors: tuple[int, int],
        attempt: tuple[int, ...] = (1, 0, 0),
        *,
        steps: int = 1,
        wait: float = 0,
        other: float = 0,
        rank: int = 0,
        fragment: bool = False,
    ) -> History:
        data = {
            "from": ns(begin),
            "to": ns(end),
            "cursor_from": cursors[0],
            "cursor_to": cursors[1],
            "steps": 0 if fragment else steps,
            "step_ns": ns(end) - ns(begin) - ns(wait) - ns(other),
            "wait_ns": ns(wait),
            "other_ns": ns(other),
        }
        data |= {"fragment": True} if fragment else {}
        return self.add(Kind.INTERVAL, end, data, attempt=attempt, rank=rank)

    def train(
        self,
        begin: float,
        end: float,
        cursors: tuple[int, int],
        attempt: tuple[int, ...] = (1, 0, 0),
        *,
        first: float = 1,
    ) -> History:
        """Steps on new data, the first as an interval of its own, as Sessions do."""
        middle = begin + first
        self.steps(begin, middle, (cursors[0], cursors[0] + 1), attempt)
        count = cursors[1] - cursors[0] - 1
        if count:
            self.steps(middle, end, (cursors[0] + 1, cursors[1]), attempt, steps=count)
        return self

    def session_ended(
        self, time: float, outcome: str = "success", attempt: tuple[int, ...] = (1, 0, 0)
    ) -> History:
        return self.add(Kind.SESSION_ENDED, time, {"outcome": outcome}, attempt=attempt, rank=0)

    def ended(
        self, time: float, cause: str | None, attempt: tuple[int, ...] = (1, 0, 0)
    ) -> History:
        data = {"cause": cause, "evidence": {"text": "as the test says", "source": "test"}}
        return self.add(Kind.ATTEMPT_ENDED, time, data, attempt=attempt)

    def job_ended(self, time: float, state: str = "succeeded", cause: str | None = None) -> History:
        return self.add(Kind.JOB_ENDED, time, {"state": state, "cause": cause})

    def measure(self, now: float | None = None, sign: float | None = None) -> JobMetric:
        """Measure, and hold what must hold for every job."""
        metric = measure(
            self.events,
            now_ns=None if now is None else ns(now),
            last_sign_ns=None if sign is None else ns(sign),
        )
        check(metric)
        return metric


def check(metric: JobMetric) -> None:
    """Assert the invariants of every result."""
    wall = metric.wall_ns
    assert wall == metric.end_ns - metric.begin_ns - metric.excluded_ns >= 0
    assert sum(metric.phases_ns.values()) == wall
    assert sum(metric.components_ns.values()) == wall
    assert sum(metric.levels_ns.values()) == wall
    assert min([0, *metric.phases_ns.values(), *metric.levels_ns.values()]) >= 0
    phases: Counter[str] = Counter()
    for attempt in metric.attempts:
        phases.update(attempt.phases_ns)
    assert phases == Counter(metric.phases_ns)
    for attempt in metric.attempts:
        assert sum(attempt.phases_ns.values()) == attempt.end_ns - attempt.begin_ns
    assert metric.levels_ns["effective"] == metric.effective_ns
    assert (
        metric.phases_ns.get("train", 0) == metric.effective_ns == metric.components_ns["effective"]
    )
    assert metric.levels_ns["recovery"] == sum(recovery.ns for recovery in metric.ttr)
    assert 0 <= metric.held_ns <= wall
    assert metric.nof == sum(metric.nof_by_cause.values()) == sum(metric.nof_by_layer.values())
    for percent in (metric.ett_pct, metric.ett_pct_held, metric.ett_pct_paper):
        assert percent is None or 0 <= percent <= 100
    main = [span for span in metric.spans if span.lane == "main"]
    assert [span for lane in metric.lanes for span in unpacked(lane)] == list(metric.spans)
    assert all(span.begin_ns < span.end_ns for span in main)
    edges = [metric.begin_ns, *(span.end_ns for span in main)]
    assert [span.begin_ns for span in main] == edges[:-1]
    assert edges[-1] == metric.end_ns


def unpacked(lane: Lane) -> list[Span]:
    """Return the spans of an attempt."""
    times = zip(lane.keys, pairwise(lane.edges), strict=True)
    spans = [Span(begin, end, lane.phases[key], lane.attempt) for key, (begin, end) in times]
    return [*spans, *lane.beside]


def seconds(phases: Any) -> dict[str, float]:
    """Return phase -> seconds."""
    return {name: value / SECOND for name, value in phases.items()}


def by_hand(metric: JobMetric) -> dict[str, Any]:
    """What a test computes by hand, in seconds: each attempt's phases, the rest of the job."""
    return {
        "attempts": [present(attempt.phases_ns) for attempt in metric.attempts],
        "components": present(metric.components_ns),
        "levels": present(metric.levels_ns),
        "layers": dict(metric.nof_by_layer),
        "causes": dict(metric.nof_by_cause),
        "tts": metric.tts_ns / SECOND,
        "ttr": [(recovery.ns / SECOND, recovery.recovered) for recovery in metric.ttr],
        "utt": metric.utt_ns / SECOND,
        "held": metric.held_ns / SECOND,
        "wall": metric.wall_ns / SECOND,
        "quality": [metric.quality, *metric.quality_reasons],
    }


def present(phases: Any) -> dict[str, float]:
    """Return phase -> seconds, those alone that took any."""
    return {name: value for name, value in seconds(phases).items() if value}


@pytest.fixture
def history() -> History:
    """An empty history."""
    return History()


@pytest.fixture(scope="session")
def new_history() -> type[History]:
    """A maker of empty histories, for tests that need one per example."""
    return History


@pytest.fixture
def second_example(history: History) -> History:
    """The definition's second example: 10 + 90 + 30 + 38 + 32 = 200."""
    second, third = (2, 0, 0), (3, 0, 0)
    history.open("local_detached").submit(0).session(0, 0).phase("device_init", 0, 10)
    history.train(10, 100, (0, 90)).ended(105, "infrastructure")
    history.submit(110, 2, "relaunch").session(110, 112, second, hwm=90)
    history.phase("checkpoint_restore", 115, None, second)
    history.add("failure", 130, {"exit_code": 1}, attempt=second, rank=0)
    history.ended(131, "application", second).submit(140, 3, "airflow", 2)
    history.session(140, 142, third, hwm=90).phase("checkpoint_restore", 145, 168, third)
    history.train(168, 200, (90, 106), third, first=2).session_ended(200, "success", third)
    return history.ended(201, None, third).job_ended(201)


@pytest.fixture(scope="session")
def invariants() -> Any:
    """The check that every result must pass."""
    return check


@pytest.fixture
def in_seconds() -> Any:
    """Phase -> seconds instead of nanoseconds."""
    return seconds


@pytest.fixture
def told() -> Any:
    """What a life's every number is compared with."""
    return by_hand


@pytest.fixture(scope="session")
def lives() -> SimpleNamespace:
    """Random lives of jobs: what the module of that name beside this one holds."""
    held = runpy.run_path(str(Path(__file__).with_name("random_lives.py")))
    return SimpleNamespace(**{name: it for name, it in held.items() if not name.startswith("_")})
