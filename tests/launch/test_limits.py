"""How long a job is waited for: pure, and counted from what the log says."""

from __future__ import annotations

import pytest

from airflow_ett.events import Layer
from airflow_ett.launch.history import Submission
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.status import SchedulerStatus

SECOND = 1_000_000_000
PENDING = SchedulerStatus("PENDING", raw="PENDING", message="Resources")


def waiting(**changes: object) -> Submission:
    fields: dict[str, object] = {
        "number": 1,
        "app": "app",
        "digest": "d",
        "layer": Layer.FIRST,
        "try_number": 1,
        "intended_ns": 0,
        "handle": "fake://app",
        "handed_ns": 100 * SECOND,
    }
    return Submission(**{**fields, **changes})  # type: ignore[arg-type]


LIMITS = Limits(start_timeout_s=30, unknown_grace_s=20)


def test_a_start_is_waited_for_from_the_hand_over() -> None:
    assert LIMITS.overdue(waiting(), PENDING, 129 * SECOND) is None
    text = LIMITS.overdue(waiting(), PENDING, 145 * SECOND)
    assert text is not None
    for word in ("45 s", "start_timeout 30 s", "PENDING", "Resources"):
        assert word in text


@pytest.mark.parametrize(
    ("submission", "status"),
    [
        (waiting(started=True), PENDING),
        (waiting(), SchedulerStatus("RUNNING")),
        (waiting(handle=None), PENDING),
        (waiting(), SchedulerStatus(None)),
        (waiting(), SchedulerStatus("UNKNOWN", raw="?")),
    ],
    ids=["started", "running", "not handed over", "no answer", "unknown"],
)
def test_no_late_start_of(submission: Submission, status: SchedulerStatus) -> None:
    assert LIMITS.overdue(submission, status, 999 * SECOND) is None


def test_the_trys_deadline_holds_whatever_the_scheduler_says() -> None:
    limits = Limits(deadline_ns=200 * SECOND)
    for status in (PENDING, SchedulerStatus(None)):
        assert limits.overdue(waiting(started=True), status, 199 * SECOND) is None
        assert "execution_timeout" in str(limits.overdue(waiting(), status, 200 * SECOND))


def test_without_limits_nothing_is_overdue() -> None:
    assert Limits().overdue(waiting(), PENDING, 10**9 * SECOND) is None


@pytest.mark.parametrize(
    ("since_s", "heartbeat_s", "now_s", "forgotten"),
    [
        (None, None, 999, False),
        (100, None, 119, False),
        (100, None, 120, True),
        (100, 110, 129, False),
        (100, 110, 130, True),
        (100, 90, 120, True),
    ],
)
def test_the_grace_counts_from_the_last_word_of_scheduler_and_agents(
    since_s: int | None, heartbeat_s: int | None, now_s: int, forgotten: bool
) -> None:
    submission = waiting(unknown_since_ns=None if since_s is None else since_s * SECOND)
    beat = None if heartbeat_s is None else heartbeat_s * SECOND
    assert LIMITS.forgotten(submission, now_s * SECOND, beat) is forgotten


def test_a_clock_that_was_put_back_makes_nobody_wait() -> None:
    failed = SchedulerStatus("FAILED", raw="FAILED", may_return=True)
    ahead = waiting(told_ns=3700 * SECOND, unknown_since_ns=3700 * SECOND)
    assert LIMITS.settled(ahead, failed, 100 * SECOND)
    assert LIMITS.forgotten(ahead, 100 * SECOND, 3699 * SECOND)
    assert not LIMITS.forgotten(ahead, 100 * SECOND, 101 * SECOND)  # its clock goes ahead a little
