"""Each event once: which numbers are missing, and which of two under one number counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import AttemptId, Event
from airflow_ett.metric.evidence.intake import Intake

KINDS = ("interval", "phase_begin", "session_started", "session_ended", "of_the_future")
NUMBERED = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(KINDS)), max_size=14, unique_by=lambda one: one[0]
)


def event(seq: int, kind: str, writer: str = "w", **data: Any) -> Event:
    parts = {
        "cursor_from": 0,
        "cursor_to": 1,
        "steps": 1,
        "step_ns": 2,
        "wait_ns": 0,
        "other_ns": 0,
    }
    fields = {"from": seq, "to": seq + 2, **parts} if kind == "interval" else {"span": str(seq)}
    return Event("j", writer, seq, seq + 2, kind, AttemptId(1), 0, {**fields, **data})


def taken(events: list[Event]) -> Intake:
    intake = Intake()
    for one in events:
        intake.add([one])
    intake.arrange()
    return intake


@settings(max_examples=1000, deadline=None)
@given(NUMBERED, st.integers(0, 3))
def test_the_numbers_that_are_missing(numbered, copies) -> None:
    """Of a Session that has not ended, one may be reserved for the interval that is open."""
    events = [event(seq, kind) for seq, kind in numbered]
    notes = taken([*events, *events[:copies]]).notes()
    known = {seq for seq, _ in numbered}
    missing = {*range(max(known, default=0))} - known
    kinds = [kind for _, kind in numbered]
    closed = max([seq for seq, kind in numbered if kind == "interval"], default=-1)
    live = kinds.count("session_started") > kinds.count("session_ended")
    count = len(missing) - (live and any(seq > closed for seq in missing))
    wanted = {f"events of writer w are missing: {count}"} if count else set()
    assert {note for note in notes if "missing" in note} == wanted


ROW = event(3, "interval")
VERSIONS = [
    ROW,
    replace(ROW, time_ns=6, data={**ROW.data, "to": 7, "step_ns": 4}),
    replace(ROW, data={**ROW.data, "cursor_to": 2}),
    replace(ROW, rank=1),
    replace(ROW, attempt=AttemptId(2)),
    replace(ROW, attempt=None),
    replace(ROW, time_ns=4, data={**ROW.data, "to": None}),
    event(3, "phase_begin"),
    replace(event(3, "phase_begin"), time_ns=9),
    replace(event(3, "of_the_future"), time_ns=7),
    replace(event(3, "job_ended"), attempt=None, time_ns=6),
]


def state(intake: Intake) -> Any:
    """All that a reader of it can see."""
    attempts = {
        name: {
            "ranks": {
                number: ([*rank.rows.between(0, len(rank.rows))], rank.told, rank.lanes.open)
                for number, rank in one.ranks.items()
            },
            "signs": one.signs,
        }
        for name, one in intake.attempts.items()
    }
    seen = intake.told, intake.has_trainer, intake.newest_ns, intake.notes()
    return attempts, seen


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=6), st.booleans())
def test_of_two_under_one_number_the_same_counts_in_any_order(versions, beside) -> None:
    around = [event(seq, "interval") for seq in (0, 1, 2, 4)] if beside else []
    one = taken([*around, *versions])
    other = taken([*versions[::-1], *around[::-1]])
    assert state(one) == state(other)


def test_the_later_of_two_counts() -> None:
    grown = VERSIONS[1]
    for events in ([ROW, grown], [grown, ROW], [ROW, grown, ROW]):
        rows = taken(events).attempts[AttemptId(1)].ranks[0].rows
        assert [row[1] for row in rows.between(0, len(rows))] == [7]
    named = event(3, "session_started", cursor_hwm=5)
    for events in ([ROW, replace(named, time_ns=9)], [replace(named, time_ns=9), ROW]):
        rank = taken(events).attempts[AttemptId(1)].ranks[0]
        assert len(rank.rows) == 0
        assert "session_started" in rank.told


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_of_several_jobs_the_smallest_is_taken(order) -> None:
    jobs = [replace(ROW, job=job) for job in ("b", "a", "c")]
    intake = taken([jobs[at] for at in order])
    assert intake.job == "a"
    assert intake.notes() == {
        "events of 2 other jobs were skipped",
        "events of writer w are missing: 3",
    }


def test_events_that_name_no_attempt_are_told() -> None:
    intake = taken([replace(event(0, "session_started"), attempt=None)])
    assert intake.notes() == {"events of kind session_started that name no attempt were skipped"}
    assert intake.attempts == {}
