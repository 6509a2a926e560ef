"""Every row of the adoption table."""

from typing import Any

import pytest

from airflow_ett.events import Cause, JobState, Layer
from airflow_ett.launch.adoption import Action, backoff_ns, cleared, decide, made_again
from airflow_ett.launch.history import History, Submission


def submission(**changes: object) -> Submission:
    fields: dict[str, object] = {
        "number": 1,
        "app": "app",
        "digest": "d",
        "layer": Layer.FIRST,
        "try_number": 1,
        "intended_ns": 0,
        "handle": "local_detached://x/app",
    }
    return Submission(**{**fields, **changes})  # type: ignore[arg-type]


def history(*submissions: Submission, **changes: object) -> History:
    fields: dict[str, object] = {"try_number": 1, "max_tries": 2}
    return History(submissions=list(submissions), **{**fields, **changes})  # type: ignore[arg-type]


OVER = {"ended": True, "cause": Cause.APPLICATION}
DONE = {"ended": True, "cause": None}
LOST = {"ended": True, "cause": Cause.PREEMPTED}

RETRY, CLEAR, TRIGGER = (2, 2), (2, 4), (1, 2)
"""Try and max_tries of what comes after the first try's claim."""

NEW_RUN = {"new_run": True}
OTHER = {"digest": "other"}

TABLE: list[tuple[str, History, tuple[int, int], dict[str, Any], Action]] = [
    ("nothing yet", History(), TRIGGER, {}, Action.SUBMIT),
    ("succeeded in a former try", history(submission(**DONE)), RETRY, {}, Action.REPORT),
    ("succeeded, cleared", history(submission(**DONE)), CLEAR, {}, Action.REPORT),
    ("succeeded, edited", history(submission(**DONE)), RETRY, OTHER, Action.REPORT),
    (
        "succeeded, edited, clear recorded",
        history(submission(**DONE), user_restart=True),
        RETRY,
        OTHER,
        Action.SUBMIT,
    ),
    ("succeeded, same in a new run", history(submission(**DONE)), TRIGGER, NEW_RUN, Action.REPORT),
    (
        "succeeded, other in a new run",
        history(submission(**DONE)),
        TRIGGER,
        NEW_RUN | OTHER,
        Action.SUBMIT,
    ),
    ("over in a former try", history(submission(**OVER)), RETRY, {}, Action.SUBMIT),
    ("over for good in this try", history(submission(**OVER)), TRIGGER, {}, Action.REPORT),
    ("over for good, new run", history(submission(**OVER)), TRIGGER, NEW_RUN, Action.SUBMIT),
    (
        "over in this try, restart pending",
        history(submission(**OVER), user_restart=True),
        TRIGGER,
        {},
        Action.SUBMIT,
    ),
    ("preempted in this try", history(submission(**LOST)), TRIGGER, {}, Action.SUBMIT),
    (
        "ended in this try",
        history(submission(**LOST), ended=JobState.FAILED),
        TRIGGER,
        {},
        Action.REPORT,
    ),
    ("intended", history(submission(handle=None)), RETRY, {}, Action.FIND),
    (
        "intended, same in a new run",
        history(submission(handle=None)),
        TRIGGER,
        NEW_RUN,
        Action.FIND,
    ),
    (
        "intended, other in a new run",
        history(submission(handle=None)),
        TRIGGER,
        NEW_RUN | OTHER,
        Action.RESTART,
    ),
    ("live", history(submission()), RETRY, {}, Action.ADOPT),
    ("live, same try", history(submission()), TRIGGER, {}, Action.ADOPT),
    ("live, edited", history(submission()), RETRY, OTHER, Action.ADOPT),
    ("live, same in a new run", history(submission()), TRIGGER, NEW_RUN, Action.ADOPT),
    ("live, other in a new run", history(submission()), TRIGGER, NEW_RUN | OTHER, Action.RESTART),
    ("live, cleared", history(submission()), CLEAR, {}, Action.RESTART),
    ("live, clear recorded", history(submission(), user_restart=True), RETRY, {}, Action.RESTART),
    ("intended, cleared", history(submission(handle=None)), CLEAR, {}, Action.RESTART),
    ("cancelled", history(submission(cancel_reason=Cause.TIMEOUT)), RETRY, {}, Action.AWAIT_END),
    (
        "cancelled, cleared",
        history(submission(cancel_reason=Cause.TIMEOUT)),
        CLEAR,
        {},
        Action.AWAIT_END,
    ),
    (
        "cancelled, other in a new run",
        history(submission(cancel_reason=Cause.TIMEOUT)),
        TRIGGER,
        NEW_RUN | OTHER,
        Action.AWAIT_END,
    ),
]


@pytest.mark.parametrize(("name", "past", "tries", "sign", "action"), TABLE)
def test_the_table(
    name: str, past: History, tries: tuple[int, int], sign: dict[str, Any], action: Action
) -> None:
    sign = {"digest": "d", **sign}
    found = decide(past, try_number=tries[0], max_tries=tries[1], max_relaunches=3, **sign)
    assert found is action


@pytest.mark.parametrize(
    ("last_try", "try_number", "mode", "expected"),
    [
        (0, 1, "task", False),
        (1, 1, "task", True),
        (3, 1, "task", True),
        (1, 2, "task", False),
        (1, 1, "trigger", False),
    ],
)
def test_a_run_made_again_counts_its_tries_anew(
    last_try: int, try_number: int, mode: str, expected: bool
) -> None:
    past = History(try_number=last_try)
    assert made_again(past, try_number=try_number, mode=mode) is expected


def test_every_action_is_in_the_table() -> None:
    assert {row[-1] for row in TABLE} == set(Action)


def test_relaunches_are_bounded() -> None:
    past = history(*(submission(number=n, layer=Layer.RELAUNCH, **LOST) for n in range(1, 5)))
    assert past.relaunches() == 3
    assert decide(past, try_number=1, max_tries=2, digest="d", max_relaunches=3) is Action.REPORT


def test_progress_counts_relaunches_anew() -> None:
    past = history(
        submission(number=1),
        submission(number=2, layer=Layer.RELAUNCH, resume_cursor=0),
        submission(number=3, layer=Layer.RELAUNCH, resume_cursor=50),
        submission(number=4, layer=Layer.RELAUNCH, resume_cursor=50),
    )
    assert past.relaunches() == 1


@pytest.mark.parametrize(
    ("last", "now", "expected"),
    [
        ((1, 2), (2, 2), False),
        ((1, 2), (2, 3), True),
        ((2, 2), (3, 4), True),
        ((1, 2), (1, 2), False),
        ((0, 0), (1, 2), False),
    ],
)
def test_a_clear_raises_max_tries_and_a_retry_does_not(
    last: tuple[int, int], now: tuple[int, int], expected: bool
) -> None:
    past = History(try_number=last[0], max_tries=last[1])
    assert cleared(past, try_number=now[0], max_tries=now[1]) is expected


def test_the_first_relaunch_is_immediate_and_the_others_are_capped() -> None:
    assert [backoff_ns(number) // 10**9 for number in (0, 1, 2, 3, 9)] == [0, 1, 2, 4, 30]
