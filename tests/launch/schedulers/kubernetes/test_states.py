"""What jobs and pods mean, from what the API server says of them alone."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.launch.schedulers.kubernetes.answers import (
    Word,
    read_events,
    read_group,
    read_job,
    read_pod,
    time_ns,
)
from airflow_ett.launch.schedulers.kubernetes.states import Seen, status_of
from airflow_ett.launch.status import SchedulerStatus
from tests.launch.schedulers.kubernetes import pods as writes

AT = "2026-11-30T08:00:00Z"
NOW_NS = time_ns("2026-11-30T09:00:00Z")


def job(phase: str, replicas: int = 1, **status: Any) -> dict[str, Any]:
    labels = [{"torchx.pytorch.org/role-name": "My_Role", "torchx.pytorch.org/replica-id": str(n)}
              for n in range(replicas)]  # fmt: skip
    tasks = [
        {"name": f"myrole-{n}", "template": {"metadata": {"labels": labels[n]}}}
        for n in range(replicas)
    ]
    state = {"phase": phase, "lastTransitionTime": AT} if phase else {}
    return {
        "metadata": {"name": "ett-a", "uid": "u"},
        "spec": {"queue": "q", "tasks": tasks},
        "status": {"state": state, **status},
    }


def pod(replica: int = 0, phase: str = "Pending", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"ett-a-myrole-{replica}-0",
            "labels": {"volcano.sh/job-name": "ett-a"},
            "annotations": {"volcano.sh/job-retry-count": "0"},
        },
        "spec": {"containers": [{"name": f"myrole-{replica}", "image": "i"}, {"name": "sidecar"}]},
        "status": {"phase": phase, **status},
    }


def status(said: dict[str, Any], *there: dict[str, Any], **more: Any) -> SchedulerStatus:
    read = {each["metadata"]["name"]: read_pod(each) for each in there}
    return status_of(Seen(read_job(said), read, frozenset(read), **more), NOW_NS)


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("", "SUBMITTED"),
        ("Pending", "PENDING"),
        ("Restarting", "PENDING"),
        ("Running", "RUNNING"),
        ("Completing", "RUNNING"),
        ("Aborting", "RUNNING"),
        ("Terminating", "RUNNING"),
        ("Completed", "SUCCEEDED"),
        ("Aborted", "CANCELLED"),
        ("Terminated", "FAILED"),
        ("Failed", "FAILED"),
        ("Hibernating", "UNKNOWN"),
    ],
)
def test_every_phase_is_a_state(phase: str, state: str) -> None:
    found = status(job(phase), pod(phase="Failed"))
    assert (found.state, found.raw, found.may_return) == (state, phase, False)
    assert found.ended_ns == (time_ns(AT) if found.terminal else None)
    assert [(r.role, r.id) for r in found.replicas] == [("My_Role", 0)]


def test_a_job_without_its_pod_has_lost_it() -> None:
    assert status(job("Terminated")).raw == "PodEvicted"
    assert status(job("Aborted")).raw == "Aborted"


def test_no_phase_is_an_end_while_a_pod_lives() -> None:
    """Volcano calls a job aborted before its pods have heard of it."""
    for phase in ("Aborted", "Terminated", "Failed", "Completed", "Hibernating"):
        assert status(job(phase), pod(phase="Running")).state == "RUNNING"
        assert status(job(phase), pod(phase="Failed")).state != "RUNNING"


def unscheduled(message: str) -> dict[str, Any]:
    found = pod()
    writes.unscheduled(found, message)
    return found


def waiting(replica: int, reason: str, message: str = "") -> dict[str, Any]:
    found = pod(replica)
    writes.schedule(found, "gpu-1")
    writes.wait(found, reason, message)
    return found


def test_the_worst_reason_to_wait_is_told_without_its_counts() -> None:
    found = status(job("Pending", 2), unscheduled("0/57 nodes are available: 12 Insufficient cpu."))
    assert found.reason == "Unschedulable: nodes are available: Insufficient cpu."
    assert "0/57 nodes" in found.message
    image = waiting(1, "ImagePullBackOff", "Back-off")
    found = status(job("Pending", 2), unscheduled("0/3 nodes"), image)
    assert found.reason == "ImagePullBackOff: Back-off"
    assert status(job("Pending"), waiting(0, "ContainerCreating")).reason == "ContainerCreating"


def test_an_init_container_is_waited_for_by_its_own_reason() -> None:
    said = waiting(0, "PodInitializing")
    said["status"]["initContainerStatuses"] = [
        {"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "denied"}}}
    ]
    assert status(job("Pending"), said).reason == "ErrImagePull: denied"
    said["status"]["initContainerStatuses"][0]["state"] = {"running": {"startedAt": AT}}
    assert status(job("Pending"), said).reason == "PodInitializing"


def test_a_job_in_the_queue_waits_for_what_its_group_does() -> None:
    assert status(job("Pending"), queued=Word("Queued")).reason == "Queued"
    assert status(job("Pending")).reason == "Pending"
    assert read_group(None) is None
    assert read_group({"status": {"phase": "Inqueue"}}) is None
    assert read_group({"status": {"phase": "Pending"}}) == Word("Queued")


def test_times_are_those_of_the_last_node_to_come_and_the_first_to_start() -> None:
    def at(minute: int) -> str:
        return f"2026-11-30T08:{minute:02d}:00Z"

    said = [pod(0, "Running"), pod(1, "Running")]
    for replica, each in enumerate(said):
        writes.schedule(each, f"gpu-{replica}")
        writes.start(each)
        placed = [c for c in each["status"]["conditions"] if c["type"] == "PodScheduled"]
        placed[0]["lastTransitionTime"] = at(10 + replica)
        state = each["status"]["containerStatuses"][0]["state"]
        state["running"]["startedAt"] = at(20 + replica)
    found = status(job("Running", 2), *said)
    assert (found.allocated_ns, found.started_ns) == (time_ns(at(11)), time_ns(at(20)))
    assert found.hosts == ("gpu-0", "gpu-1")
    assert status(job("Pending", 2), said[0]).allocated_ns is None
    for replica, each in enumerate(said):
        writes.end(each, 0)
        each["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = at(
            30 + replica
        )
    assert status(job("Completed", 2), *said).ended_ns == time_ns(at(31))


def test_the_sidecars_end_is_not_the_trainers() -> None:
    said = pod(phase="Running")
    said["status"]["containerStatuses"] = [
        {"name": "sidecar", "state": {"terminated": {"exitCode": 9, "reason": "Error"}}},
        {"name": "myrole-0", "state": {"running": {"startedAt": AT}}},
    ]
    (replica,) = status(job("Running"), said).replicas
    assert (replica.state, replica.exit_code) == ("RUNNING", None)


def test_what_ended_first_is_the_word_for_the_whole() -> None:
    first, second = pod(0), pod(1)
    for each, write, second_ in ((first, writes.evicted, 30), (second, writes.out_of_memory, 10)):
        writes.schedule(each, "gpu-1")
        write(each)
        terminated = each["status"]["containerStatuses"][0]["state"]["terminated"]
        terminated["finishedAt"] = f"2026-11-30T08:00:{second_:02d}Z"
    found = status(job("Terminated", 2), first, second)
    assert found.raw == "OOMKilled"
    assert [replica.exit_code for replica in found.replicas] == [137, 137]


def test_who_was_deleted_for_a_pod_that_had_failed_did_not_fail_by_itself() -> None:
    """It ends of SIGTERM, and tells so before it is gone."""
    stopped, failed = pod(0), pod(1)
    for each, code in ((stopped, 143), (failed, 1)):
        writes.schedule(each, "gpu-1")
        writes.end(each, code)
    stopped["metadata"]["deletionTimestamp"] = AT
    found = status(job("Terminated", 2), stopped, failed)
    assert [replica.state for replica in found.replicas] == ["CANCELLED", "FAILED"]
    found = status(job("Terminated"), stopped)
    assert [replica.state for replica in found.replicas] == ["FAILED"]


def test_events_of_long_ago_are_of_another_pod_of_the_name() -> None:
    old = {"reason": "Evict", "message": "because of preempt", "lastTimestamp": AT}
    assert read_events([old]) == Word("Evict", "because of preempt")
    assert read_events([old], since_ns=NOW_NS) is None
    newer = {"reason": "TaintManagerEviction", "message": "Marking for deletion Pod x",
             "eventTime": "2026-11-30T08:00:01.000000Z", "lastTimestamp": None}  # fmt: skip
    assert read_events([old, newer, {"reason": "Killing", "lastTimestamp": AT}]) == Word(
        "TaintManagerEviction", "Marking for deletion Pod x"
    )
