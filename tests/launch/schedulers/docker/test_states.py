"""What containers mean."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.events import Cause
from airflow_ett.launch.schedulers.docker.states import status_of, time_ns
from airflow_ett.launch.verdict import Sighting, judge
from tests.launch.schedulers.docker.engine import Container

BEGUN, ENDED = "2026-11-30T07:00:00.5Z", "2026-11-30T07:10:00.123456789Z"
SECOND = 10**9
SEVEN = 1_796_022_000 * SECOND
"""2026-11-30T07:00:00Z."""


def container(number: int = 0, status: str = "exited", code: int = 0, **fields: Any) -> Any:
    labels = {
        "torchx.pytorch.org/app-id": "ett",
        "torchx.pytorch.org/role-name": "trainer",
        "torchx.pytorch.org/replica-id": str(number),
    }
    name = fields.pop("name", f"ett-trainer-{number}")
    made = f"2026-11-30T06:00:0{number}Z"
    body = {"Image": "i", "Labels": labels, "Hostname": f"ett-trainer-{number}"}
    started = {} if status == "created" else {"started": BEGUN}
    ended = {"finished": ENDED} if status == "exited" else {}
    made_up = Container(str(number), name, body, made, status, code, **started, **ended, **fields)
    return made_up.inspected()


@pytest.mark.parametrize(
    ("status", "code", "state"),
    [
        ("running", 0, "RUNNING"),
        ("restarting", 0, "PENDING"),
        ("paused", 0, "PENDING"),
        ("removing", 0, "PENDING"),
        ("exited", 0, "SUCCEEDED"),
        ("exited", 3, "FAILED"),
        ("dead", 0, "FAILED"),
        ("levitating", 0, "UNKNOWN"),
    ],
)
def test_the_table(status: str, code: int, state: str) -> None:
    told = status_of([container(status=status, code=code)])
    assert (told.state, told.raw) == (state, status)
    assert told.replicas[0].exit_code == (code if status == "exited" else None)
    assert told.replicas[0].host == "ett-trainer-0"
    assert not told.may_return


def test_an_app_that_was_never_started_whole_is_no_app_yet() -> None:
    told = status_of([container(0, "running"), container(1, "created")])
    assert (told.state, told.raw) == ("SUBMITTED", "unstarted")


def test_times_are_of_the_first_start_and_the_last_end() -> None:
    told = status_of([container(0), container(1)])
    assert (told.started_ns, told.ended_ns) == (SEVEN + SECOND // 2, SEVEN + 600_123_456_789)
    assert status_of([container(0), container(1, "running")]).ended_ns is None


def test_replicas_stand_in_their_order_though_the_engine_leaves_zeros_out() -> None:
    later = container(0) | {"Created": "2026-11-30T06:00:01.05Z"}
    told = status_of([later, container(1)])
    assert [replica.id for replica in told.replicas] == [1, 0]


def test_replicas_stand_in_their_order_whatever_the_engines() -> None:
    told = status_of([container(2), container(0), container(1)])
    assert [replica.id for replica in told.replicas] == [0, 1, 2]


def test_one_that_failed_is_an_app_that_failed_once_all_are_over() -> None:
    assert status_of([container(0, "running"), container(1, code=1)]).state == "RUNNING"
    told = status_of([container(0), container(1, code=1)])
    assert (told.state, told.message) == ("FAILED", "container ett-trainer-1")


def test_what_was_asked_to_end_was_cancelled_unless_it_ended_well() -> None:
    cancelled = container(code=143, name="ett-trainer-0.cancelled")
    assert status_of([cancelled, container(1, code=137)]).state == "CANCELLED"
    assert status_of([container(name="ett-trainer-0.cancelled")]).state == "SUCCEEDED"


@pytest.mark.parametrize(
    ("fields", "cause", "words"),
    [
        ({"code": 137, "oom_killed": True}, Cause.OUT_OF_MEMORY, "OOMKilled"),
        ({"code": 137}, Cause.INFRASTRUCTURE, "signal 9"),
        ({"code": 143}, Cause.PREEMPTED, "SIGTERM"),
        ({"code": 139}, Cause.APPLICATION, "signal 11"),
        ({"code": 1}, Cause.APPLICATION, "code 1"),
        ({"code": 0, "oom_killed": True}, None, "success"),
    ],
)
def test_the_cause_follows_from_how_a_container_ended(
    fields: dict[str, Any], cause: Cause | None, words: str
) -> None:
    told = status_of([container(**fields)])
    verdict = judge(Sighting(told.state, told.raw, told.message, replicas=told.replicas))
    assert verdict.cause == cause
    assert words in verdict.evidence["text"]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2026-11-30T07:00:00Z", SEVEN),
        ("2026-11-30T07:00:00.000000001Z", SEVEN + 1),
        ("2026-11-30T09:00:00.25+02:00", SEVEN + SECOND // 4),
        ("0001-01-01T00:00:00Z", None),
        ("step 1", None),
        ("", None),
    ],
)
def test_times(text: str, ns: int | None) -> None:
    assert time_ns(text) == ns
