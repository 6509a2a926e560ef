"""The same error at the same cursor, twice: no retry mends that, and nothing else is that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.events import Cause, Layer
from airflow_ett.launch.history import History, Submission
from airflow_ett.launch.repetition import repeated


def failed(number: int, message: str = "bad batch", **fields: Any) -> Submission:
    proof = {"error": {"type": "ValueError", "message": message}}
    told = {"cause": Cause.APPLICATION, "proof": proof, "cursor": 100, "resume_cursor": 40}
    ended = Submission(number, "app", "digest", Layer.AIRFLOW, number, 0, ended=True)
    return replace(ended, **{**told, **fields})


def crashed(number: int, **how: Any) -> Submission:
    return failed(number, proof={"exit_code": None, "signal": None, **how})


def history(*submissions: Submission) -> History:
    return History(submissions=list(submissions))


def test_the_same_error_at_the_same_cursor_is_one() -> None:
    assert repeated(history(failed(1), failed(2)), 40)
    assert repeated(history(failed(1, "another"), failed(2), failed(3)), 40)


def test_what_the_first_of_them_saved_is_no_progress_between() -> None:
    assert repeated(history(failed(1, resume_cursor=0), failed(2, resume_cursor=90)), 90)


@pytest.mark.parametrize(
    ("before", "last"),
    [
        ("no DataLoader worker (pid 4711)", "no DataLoader worker (pid 4712)"),
        ("<Tensor at 0x7f3a00>", "<Tensor at 0x7f4b11>"),
        ("no file /scratch/tmpx3_9ab/part", "no file /scratch/tmpq7rr0c/part"),
        ("timed out after 30.02 s at 10.0.0.3:29500", "timed out after 30.7 s at 10.0.0.9:41000"),
    ],
)
def test_numbers_that_change_from_run_to_run_make_no_other_error(before: str, last: str) -> None:
    assert repeated(history(failed(1, before), failed(2, last)), 40)


def test_a_crash_without_words_is_known_by_how_it_ended() -> None:
    assert repeated(history(crashed(1, signal=11), crashed(2, signal=11)), 40)
    assert not repeated(history(crashed(1, signal=11), crashed(2, signal=6)), 40)
    assert not repeated(history(crashed(1), crashed(2)), 40)


OTHER_TYPE = {"error": {"type": "KeyError", "message": "bad batch"}}


@pytest.mark.parametrize(
    "before",
    [
        failed(1, "another"),
        failed(1, proof=OTHER_TYPE),
        failed(1, cursor=99),
        failed(1, cause=Cause.OUT_OF_MEMORY),
        failed(1, cause=Cause.USER_RESTART),
        failed(1, cause=None),
        failed(1, ended=False),
    ],
)
def test_anything_else_before_it_is_not(before: Submission) -> None:
    assert not repeated(history(before, failed(2)), 40)


def test_only_the_attempt_right_before_counts() -> None:
    between = failed(2, cause=Cause.PREEMPTED)
    assert not repeated(history(failed(1), between, failed(3)), 40)


def test_a_checkpoint_that_was_committed_in_between_is_progress() -> None:
    assert not repeated(history(failed(1), failed(2)), 60)


def test_an_unknown_cursor_is_like_no_other() -> None:
    assert not repeated(history(failed(1, cursor=None), failed(2, cursor=None)), 40)
    assert repeated(history(failed(1, cursor=0), failed(2, cursor=0)), 40)


def test_a_first_failure_repeats_nothing() -> None:
    assert not repeated(history(failed(1)), 0)
    assert not repeated(history(), 0)
