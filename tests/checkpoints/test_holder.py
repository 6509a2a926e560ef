"""The rules of the lease: one test per row, and what holds of all of them together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.checkpoints.holder import SILENT_AFTER_S, Found, Holder, Ruling, launch, rule
from airflow_ett.events import AttemptId

MINE = Holder("j" * 20, "dag.train", AttemptId(2, 1, 0), "node-a", 7, "2026-11-29T18:00:00+00:00")
OTHER = replace(MINE, job="k" * 20, name="dag.other")
ALIVE, SILENT = 3.0, SILENT_AFTER_S

ROWS = {
    "none": (None, Ruling.TAKE),
    "same launch, alive": (Found(MINE, ALIVE), Ruling.TAKE),
    "earlier submission, alive": (Found(replace(MINE, attempt=AttemptId(1)), ALIVE), Ruling.TAKE),
    "earlier requeue, silent": (Found(replace(MINE, attempt=AttemptId(2)), SILENT), Ruling.TAKE),
    "an elastic restart, whatever its number": (
        Found(replace(MINE, attempt=AttemptId(2, 1, 3)), ALIVE), Ruling.TAKE,
    ),
    "later submission, alive": (
        Found(replace(MINE, attempt=AttemptId(3)), ALIVE), Ruling.SUPERSEDED,
    ),
    "later requeue, silent": (
        Found(replace(MINE, attempt=AttemptId(2, 2)), SILENT), Ruling.SUPERSEDED,
    ),
    "another job, alive": (Found(OTHER, ALIVE), Ruling.REFUSED),
    "another job, silent": (Found(OTHER, SILENT), Ruling.REFUSED),
    "unreadable, alive": (Found(None, ALIVE), Ruling.REFUSED),
    "unreadable, silent": (Found(None, SILENT), Ruling.TAKE),
    "unreadable, by a clock ahead": (Found(None, -3600.0), Ruling.REFUSED),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_each_row(row: str) -> None:
    found, ruling = ROWS[row]
    assert rule(MINE, found, after_mine=False) is ruling


def test_the_row_of_whoever_took_it_after_a_trainer_of_the_same_launch() -> None:
    for found, ruling in ROWS.values():
        same = found is not None and found.holder is not None and found.holder.job == MINE.job
        replaced = same and launch(found.holder.attempt) == launch(MINE.attempt)
        assert rule(MINE, found, after_mine=True) is (Ruling.SUPERSEDED if replaced else ruling)


attempts = st.builds(AttemptId, *(st.integers(0, 3),) * 3)
holders = st.builds(
    Holder,
    job=st.sampled_from(["j" * 20, "k" * 20]),
    name=st.text(),
    attempt=attempts,
    host=st.text(),
    pid=st.integers(1),
    since=st.text(),
)
silences = st.floats(-1e6, 1e6)


@given(holders, holders, silences, silences)
def test_of_two_trainers_of_a_job_exactly_one_may_go_on_and_no_silence_changes_it(
    late: Holder, early: Holder, first: float, second: float
) -> None:
    """``late`` comes while ``early`` holds the lease; if it takes it, ``early`` looks again."""
    ruling = rule(late, Found(early, first), after_mine=False)
    if late.job != early.job:
        assert ruling is Ruling.REFUSED
    elif launch(late.attempt) < launch(early.attempt):
        assert ruling is Ruling.SUPERSEDED
    else:
        assert ruling is Ruling.TAKE
        assert rule(early, Found(late, second), after_mine=True) is Ruling.SUPERSEDED


@given(holders)
def test_a_holder_is_read_as_written(holder: Holder) -> None:
    assert Holder.decode(holder.encode()) == holder


@given(holders, st.data())
def test_no_part_of_a_holder_is_taken_for_one(holder: Holder, data: st.DataObject) -> None:
    whole = holder.encode()
    assert Holder.decode(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(st.binary() | st.sampled_from([b"null", b"[]", b"{}", b'{"attempt": 3}', b"1" * 5000]))
def test_whatever_else_is_there_is_unreadable_not_an_error(content: bytes) -> None:
    assert Holder.decode(content) is None
