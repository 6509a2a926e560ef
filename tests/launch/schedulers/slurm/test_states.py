"""Slurm's words in those that all schedulers share."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.events import Cause
from airflow_ett.launch.schedulers.slurm.answers import Job
from airflow_ett.launch.schedulers.slurm.states import state_of, status_of
from airflow_ett.launch.status import ReplicaStatus, SchedulerStatus
from airflow_ett.launch.verdict import Sighting, judge


def job(state: str, **known: Any) -> Job:
    facts: dict[str, Any] = {"nodes": "n[1-2]", "begin_s": 5, "end_s": 6, "requeue": True}
    return Job(7, "app", state, **facts | known)


def status(state: str, replicas: int = 2, **known: Any) -> SchedulerStatus:
    return status_of(job(state, **known), "r", replicas)


@pytest.mark.parametrize(
    ("word", "state", "returns", "cause"),
    [
        ("COMPLETED", "SUCCEEDED", False, None),
        ("CANCELLED", "CANCELLED", False, Cause.USER_CANCELLED),
        ("REVOKED", "CANCELLED", False, Cause.USER_CANCELLED),
        ("FAILED", "FAILED", False, Cause.UNKNOWN),
        ("TIMEOUT", "FAILED", False, Cause.TIMEOUT),
        ("DEADLINE", "FAILED", False, Cause.TIMEOUT),
        ("OUT_OF_MEMORY", "FAILED", False, Cause.OUT_OF_MEMORY),
        ("PREEMPTED", "FAILED", True, Cause.PREEMPTED),
        ("NODE_FAIL", "FAILED", True, Cause.INFRASTRUCTURE),
        ("BOOT_FAIL", "FAILED", True, Cause.INFRASTRUCTURE),
    ],
)
def test_an_end_has_a_state_a_cause_and_may_be_followed_by_another_run(
    word: str, state: str, returns: bool, cause: Cause | None
) -> None:
    told = status(word)
    assert (told.state, told.raw, told.may_return) == (state, word, returns)
    assert (told.allocated_ns, told.ended_ns) == (5 * 10**9, 6 * 10**9)
    assert judge(Sighting(told.state, told.raw, told.message)).cause == cause
    assert not status(word, requeue=False).may_return
    assert not status(word, queued=False).may_return


WAITING = (
    *("PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_FED"),
    *("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
)


@pytest.mark.parametrize("word", WAITING)
def test_what_waits_tells_why_and_no_end(word: str) -> None:
    told = status(word, reason="JobHeldUser")
    assert (told.state, told.reason, told.ended_ns) == ("PENDING", "JobHeldUser", None)
    assert told.message == "Slurm job 7 on n[1-2]: JobHeldUser"


def test_nodes_are_allocated_from_their_boot_on_and_never_while_their_time_lies_ahead() -> None:
    assert status("CONFIGURING").allocated_ns == 5 * 10**9
    assert status("RUNNING").allocated_ns == 5 * 10**9
    assert status("PENDING").allocated_ns is None
    assert status("CANCELLED", nodes="").allocated_ns is None


def test_what_completes_still_runs_unless_it_is_already_counted_as_another_run() -> None:
    assert state_of(job("COMPLETING")) == "RUNNING"
    assert state_of(job("COMPLETING", restart=1)) == "PENDING"
    assert status("COMPLETING", restart=1, former="PREEMPTED").former == ""
    assert status("PENDING", restart=1, former="PREEMPTED").former == "PREEMPTED"


def test_a_new_word_says_nothing() -> None:
    assert status("QUANTUM").state == "UNKNOWN"


def test_a_job_that_only_the_accounts_call_alive_is_lost() -> None:
    told = status("RUNNING", queued=False)
    assert (told.state, told.raw) == ("UNKNOWN", "LOST")
    assert "slurmctld has lost job 7" in told.message


def test_a_failure_after_a_request_to_end_is_that_end() -> None:
    told = status_of(job("FAILED"), "r", 1, asked=True)
    assert (told.state, told.raw) == ("CANCELLED", "FAILED")
    assert status_of(job("COMPLETED"), "r", 1, asked=True).state == "SUCCEEDED"


def test_a_job_that_its_node_could_not_start_was_not_cancelled_by_anybody() -> None:
    """As squeue tells of one that may not be queued again, after a Prolog that failed."""
    known: dict[str, Any] = {"exit_code": 0, "requeue": False}
    told = status("CANCELLED", **known)
    assert (told.state, told.raw, told.may_return) == ("FAILED", "LAUNCH_FAILED", False)
    assert judge(Sighting(told.state, told.raw)).cause is Cause.INFRASTRUCTURE
    for other in ({"signal": 15}, {"exit_code": 143}, {"nodes": ""}, {"queued": False}):
        assert status("CANCELLED", **known | other).state == "CANCELLED"
    assert status_of(job("CANCELLED", **known), "r", 1, asked=True).state == "CANCELLED"


def test_replicas_have_their_nodes_and_a_single_one_its_end() -> None:
    two = status("FAILED", exit_code=5)
    assert two.replicas == (
        ReplicaStatus("r", 0, "FAILED", None, None, "n1"),
        ReplicaStatus("r", 1, "FAILED", None, None, "n2"),
    )
    (one,) = status("FAILED", 1, exit_code=5, nodes="n2").replicas
    assert (one.exit_code, one.signal, one.host) == (5, None, "n2")
    (ended,) = status("TIMEOUT", 1, signal=15).replicas
    assert (ended.exit_code, ended.signal) == (None, None)
    assert [r.host for r in status("PENDING", nodes="").replicas] == [None, None]
