"""Every row of the adoption table."""

import pytest

from airflow_ett.events import Cause, JobState, Layer
from airflow_ett.launch.adoption import Action, backoff_ns, cleared, decide
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

TABLE = [
    ("nothing yet", History(), 1, 2, Action.SUBMIT),
    ("succeeded in a former try", history(submission(**DONE)), 2, 2, Action.REPORT),
    ("succeeded, cleared", history(submission(**DONE)), 2, 4, Action.REPORT),
    ("over in a former try", history(submission(**OVER)), 2, 2, Action.SUBMIT),
    ("over for good in this try", history(submission(**OVER)), 1, 2, Action.REPORT),
    ("preempted in this try", history(submission(**LOST)), 1, 2, Action.SUBMIT),
    ("ended in this try", history(submission(**LOST), ended=JobState.FAILED), 1, 2, Action.REPORT),
    ("intended", history(submission(handle=None)), 2, 2, Action.FIND),
    ("live", history(submission()), 2, 2, Action.ADOPT),
    ("live, same try", history(submission()), 1, 2, Action.ADOPT),
    ("live, cleared", history(submission()), 2, 4, Action.RESTART),
    ("live, clear recorded", history(submission(), user_restart=True), 2, 2, Action.RESTART),
    ("intended, cleared", history(submission(handle=None)), 2, 4, Action.RESTART),
    ("cancelled", history(submission(cancel_reason=Cause.TIMEOUT)), 2, 2, Action.AWAIT_END),
    (
        "cancelled, cleared",
        history(submission(cancel_reason=Cause.TIMEOUT)),
        2,
        4,
        Action.AWAIT_END,
    ),
]


@pytest.mark.parametrize(("name", "past", "try_number", "max_tries", "action"), TABLE)
def test_the_table(
    name: str, past: History, try_number: int, max_tries: int, action: Action
) -> None:
    assert decide(past, try_number=try_number, max_tries=max_tries, max_relaunches=3) is action


def test_every_action_is_in_the_table() -> None:
    assert {row[-1] for row in TABLE} == set(Action)


def test_relaunches_are_bounded() -> None:
    past = history(*(submission(number=n, layer=Layer.RELAUNCH, **LOST) for n in range(1, 5)))
    assert past.relaunches() == 3
    assert decide(past, try_number=1, max_tries=2, max_relaunches=3) is Action.REPORT


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
