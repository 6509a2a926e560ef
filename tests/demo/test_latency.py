"""Retry latency and its parts, out of a job's events."""

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett.demo.closing import latency_lines
from airflow_ett.demo.latency import retry_latencies
from airflow_ett.events import AttemptId, Event, Kind

FIRST, SECOND = AttemptId(1), AttemptId(2)
Note = Callable[..., Event]


@pytest.fixture
def note() -> Note:
    def make(kind: Kind, time_ns: int, attempt: AttemptId, **data: Any) -> Event:
        return Event("0" * 20, f"w{kind}", 0, time_ns, kind, attempt, data.pop("rank", None), data)

    return make


@pytest.fixture
def events(note: Note) -> list[Event]:
    return [
        note(Kind.SUBMITTED, 0, FIRST, layer="first"),
        note(Kind.PROCESS_STARTED, 5, FIRST, role="trainer", rank=0),
        note(Kind.PROCESS_ENDED, 1_000, FIRST, role="trainer", rank=0),
        note(Kind.PROCESS_ENDED, 1_100, FIRST, role="agent"),
        note(Kind.ATTEMPT_ENDED, 1_400, FIRST, cause="application"),
        note(Kind.SUBMITTED, 3_000, SECOND, layer="airflow"),
        note(Kind.PROCESS_STARTED, 3_500, SECOND, role="agent"),
        note(Kind.PROCESS_STARTED, 3_650, SECOND, role="trainer", rank=0),
    ]


def test_the_parts_sum_to_the_time_between_two_trainers(events: list[Event]) -> None:
    (latency,) = retry_latencies(reversed(events))
    assert (latency.cause, latency.layer, latency.attempt) == ("application", "airflow", FIRST)
    assert latency.detection_ns == 400
    assert latency.decision_ns == 1_600
    assert latency.scheduler_ns == 500
    assert latency.agent_ns == 150
    assert latency.total_ns == 3_650 - 1_000


def test_the_last_ranks_are_not_the_trainer(events: list[Event], note: Note) -> None:
    late = note(Kind.PROCESS_ENDED, 900, FIRST, role="trainer", rank=3)
    assert retry_latencies([late, *events])[0].detection_ns == 400


@pytest.mark.parametrize("missing", range(2, 8))
def test_a_missing_moment_gives_no_number(events: list[Event], missing: int) -> None:
    needed = missing != 3
    assert bool(retry_latencies(events[:missing] + events[missing + 1 :])) is not needed


def test_the_line_names_every_part(events: list[Event]) -> None:
    (line,) = latency_lines(retry_latencies(events))
    assert line.startswith("retry latency after application (airflow): ")
    for part in ("detection", "Airflow", "scheduler", "agent"):
        assert part in line
