"""Whole lives on Kubernetes: the gateway, the watcher and Kubernetes' own client, to the cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.events import AttemptId, Cause, Layer
from airflow_ett.launch.limits import UNKNOWN_GRACE_S, Limits
from airflow_ett.trainer.place import read_place
from tests.launch.schedulers.kubernetes import pods
from tests.launch.schedulers.kubernetes.conftest import Scene
from tests.launch.schedulers.kubernetes.server import Refusal, Server

Make = Callable[..., Scene]


def test_a_training_waits_runs_and_succeeds(scene: Make, server: Server) -> None:
    server.cluster.full = True
    at = scene("2x1")
    assert at.look(after_s=1) is None
    server.cluster.move("default", at.app)
    assert at.look(after_s=1) is None
    for replica in (0, 1):
        at.ends(lambda pod: pods.end(pod, 0), replica)
    assert at.look(after_s=1).cause is None
    assert at.states() == ["PENDING", "RUNNING", "SUCCEEDED"]
    waits, runs, over = (event.data for event in at.bench.events("scheduler_state"))
    assert waits["reason"] == "Unschedulable: nodes are available: Insufficient nvidia.com/gpu."
    assert runs["hosts"] == ["gpu-1", "gpu-2"]
    assert runs["allocated_ns"] <= runs["started_ns"] <= over["ended_ns"]
    assert f"/pods/{at.app}-trainer-0-0/log?container=trainer-0" in runs["log"]


@pytest.mark.parametrize(
    ("write", "cause", "raw"),
    [
        (pods.out_of_memory, Cause.OUT_OF_MEMORY, "OOMKilled"),
        (pods.past_deadline, Cause.TIMEOUT, "DeadlineExceeded"),
        (pods.unstartable, Cause.LAUNCH, "StartError"),
        (lambda pod: pods.end(pod, 3), Cause.APPLICATION, None),
        (lambda pod: pods.end(pod, 139), Cause.APPLICATION, None),
    ],
)
def test_a_pod_that_fails_tells_the_cause(
    scene: Make, write: Callable[[Any], None], cause: Cause, raw: str | None
) -> None:
    at = scene()
    assert at.look(after_s=1) is None
    at.ends(write)
    outcome = at.look(after_s=1)
    assert outcome.cause is cause
    (end,) = at.bench.events("attempt_ended")
    assert end.data["evidence"].get("raw") == raw
    assert ("executable file not found" in outcome.message) is (raw == "StartError")
    assert at.apps == 1


@pytest.mark.parametrize(
    ("write", "cause"),
    [
        (pods.evicted, Cause.PREEMPTED),
        (pods.node_shut_down, Cause.INFRASTRUCTURE),
        (pods.refused_by_node, Cause.INFRASTRUCTURE),
        (lambda pod: pods.end(pod, 143), Cause.PREEMPTED),
        (lambda pod: pods.end(pod, 137), Cause.INFRASTRUCTURE),
    ],
)
def test_a_pod_that_its_node_ended_is_relaunched_at_once(
    scene: Make, write: Callable[[Any], None], cause: Cause
) -> None:
    at = scene()
    assert at.look(after_s=1) is None
    at.ends(write)
    assert at.look(after_s=1) is None
    assert at.causes() == [cause]
    assert at.apps == 2


@pytest.mark.parametrize(
    ("write", "cause", "word"),
    [
        (pods.preempted_by_volcano, Cause.PREEMPTED, "Evict"),
        (pods.preempted, Cause.PREEMPTED, "PreemptionByScheduler"),
        (pods.drained, Cause.PREEMPTED, "EvictionByEvictionAPI"),
        (pods.on_lost_node, Cause.INFRASTRUCTURE, "DeletionByTaintManager"),
    ],
)
def test_a_pod_that_is_taken_away_gets_its_grace_and_is_relaunched(
    scene: Make, server: Server, write: Callable[[Any], None], cause: Cause, word: str
) -> None:
    """Two nodes: the one that is taken and the one that is ended for it may both be saving."""
    server.cluster.lingering = True
    at = scene("2x1")
    assert at.look(after_s=1) is None
    at.taken(write, replica=1)
    assert at.look(after_s=1) is None
    assert (at.states()[-1], at.apps, at.causes()) == ("RUNNING", 1, [])
    at.reaped()
    assert at.look(after_s=1) is None
    assert at.causes() == [cause]
    assert word in at.bench.events("attempt_ended")[0].data["evidence"]["text"]
    assert at.apps == 2
    layers = [event.data["layer"] for event in at.bench.events("submitted")]
    assert layers == [Layer.FIRST, Layer.RELAUNCH]


def test_volcano_may_start_it_again_instead(scene: Make, server: Server) -> None:
    """The same submission: another attempt of it, which the trainer knows of, too."""
    at = scene("2x1", {"requeue": True})
    assert at.look(after_s=1) is None
    server.cluster.lingering = server.cluster.closed = True
    at.taken(pods.preempted_by_volcano)
    assert at.look(after_s=1) is None
    assert at.states()[-1] == "PENDING"
    at.reaped()
    assert at.look(after_s=1) is None
    assert at.bench.events("scheduler_state")[-1].data["reason"] == (
        "NotEnoughResources: queue resource quota insufficient"
    )
    server.cluster.lingering = False
    server.cluster.move("default", at.app)
    assert at.look(after_s=1) is None
    environment = server.cluster.environment("default", f"{at.app}-trainer-0-0")
    place = read_place(environment)
    assert place is not None
    assert place.attempt == AttemptId(1, 1)
    for replica in (0, 1):
        at.ends(lambda pod: pods.end(pod, 0), replica)
    assert at.look(after_s=1).cause is None
    former, last = at.bench.events("attempt_ended")
    assert (former.attempt, former.data["cause"]) == (AttemptId(1, 0), Cause.PREEMPTED)
    assert (last.attempt, last.data["cause"]) == (AttemptId(1, 1), None)
    assert at.apps == 1


def test_what_became_of_pods_that_are_gone_is_told_by_their_events(
    scene: Make, server: Server
) -> None:
    """Nobody watched while they went."""
    at = scene()
    assert at.look(after_s=1) is None
    pod = f"{at.app}-trainer-0-0"
    server.cluster.note("default", pod, "TaintManagerEviction", "Cancelling deletion of Pod x")
    server.cluster.note("default", pod, "Evict", "Pod is evicted, because of reclaim")
    at.taken(lambda pod: None)
    assert at.look(after_s=1) is None
    assert at.causes() == [Cause.PREEMPTED]


def test_a_pod_that_somebody_deleted_without_a_word_is_taken_for_preempted(scene: Make) -> None:
    at = scene("2x1")
    assert at.look(after_s=1) is None
    at.taken(lambda pod: None, replica=1)
    assert at.look(after_s=1) is None
    assert at.causes() == [Cause.PREEMPTED]
    assert at.apps == 2


def test_what_a_trainer_told_goes_before_that(scene: Make) -> None:
    """Somebody may clean up pods that had failed by themselves."""
    at = scene()
    assert at.look(after_s=1) is None
    at.bench.reply(AttemptId(1), exit_code=3)
    at.taken(lambda pod: None)
    assert at.look(after_s=1).cause is Cause.APPLICATION


def test_a_lost_node_is_not_waited_for_though_volcano_does(scene: Make, server: Server) -> None:
    """Nobody confirms the end of a pod whose kubelet is away: it stays, on its way out."""
    server.cluster.lingering = True
    at = scene("2x1")
    assert at.look(after_s=1) is None
    at.taken(lambda pod: None, replica=1)
    del server.cluster.pods["default", f"{at.app}-trainer-0-0"]
    (lost,) = server.cluster.pods.values()
    lost["metadata"]["deletionTimestamp"] = pods.stamp(20)
    assert at.look(after_s=1) is None
    assert at.causes() == []
    lost["metadata"]["deletionTimestamp"] = pods.stamp(90)
    assert at.look(after_s=1) is None
    assert at.causes() == [Cause.INFRASTRUCTURE]
    evidence = at.bench.events("attempt_ended")[0].data["evidence"]
    assert evidence["text"] == (
        "The scheduler reports NodeLost on gpu-2: its node gpu-2 does not answer."
    )
    template = server.cluster.jobs["default", at.app]["spec"]["tasks"][0]["template"]
    (term,) = template["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    away = {"key": "metadata.name", "operator": "NotIn", "values": ["gpu-2"]}
    assert term == {"matchFields": [away]}


def test_one_of_two_nodes_that_fails_is_named_and_the_other_ended(scene: Make) -> None:
    at = scene("2x1")
    assert at.look(after_s=1) is None
    at.ends(lambda pod: pods.end(pod, 7), replica=1)
    outcome = at.look(after_s=1)
    assert outcome.cause is Cause.APPLICATION
    evidence = at.bench.events("attempt_ended")[0].data["evidence"]
    assert (evidence["replica"], evidence["host"], evidence["exit_code"]) == (1, "gpu-2", 7)


def test_an_app_that_no_node_has_room_for_is_ended_after_its_time(
    scene: Make, server: Server
) -> None:
    server.cluster.full = True
    at = scene(limits=Limits(start_timeout_s=600))
    assert at.look(after_s=599) is None
    assert at.look(after_s=2) is None
    outcome = at.look(after_s=1)
    assert outcome.cause is Cause.TIMEOUT
    assert "start_timeout 600 s" in outcome.message
    assert pods.NO_GPUS in outcome.message


@pytest.mark.parametrize(
    "broken",
    [
        ("ImagePullBackOff", 'Back-off pulling image "trainer:1"'),
        ("ErrImagePull", "manifest unknown"),
        ("InvalidImageName", 'Failed to apply default image tag "trainer:": invalid reference'),
        ("CreateContainerConfigError", 'secret "hf-token" not found'),
    ],
)
def test_an_image_that_does_not_come_is_waited_for_and_then_no_more(
    scene: Make, server: Server, broken: tuple[str, str]
) -> None:
    server.cluster.broken = broken
    at = scene()
    assert at.look(after_s=1) is None
    assert at.bench.events("scheduler_state")[-1].data["reason"].startswith(broken[0])
    (pod,) = server.cluster.pods.values()
    pods.schedule(pod, "gpu-1", age_s=590)
    pods.wait(pod, *broken)
    assert at.look(after_s=1) is None
    assert at.bench.events("cancel_requested") == []
    pods.schedule(pod, "gpu-1", age_s=610)
    pods.wait(pod, *broken)
    assert at.look(after_s=1) is None
    outcome = at.look(after_s=1)
    assert outcome.cause is Cause.LAUNCH
    assert broken[1] in outcome.message
    assert server.cluster.jobs["default", at.app]["status"]["state"]["phase"] == "Aborted"
    assert server.cluster.pods == {}


def test_who_cancels_it_at_the_cluster_is_a_user(scene: Make, server: Server) -> None:
    at = scene()
    assert at.look(after_s=1) is None
    server.cluster.abort("default", at.app)
    assert at.look(after_s=1).cause is Cause.USER_CANCELLED


def test_a_job_that_was_deleted_has_vanished(scene: Make, server: Server) -> None:
    at = scene()
    assert at.look(after_s=1) is None
    server.cluster.jobs.clear()
    server.cluster.pods.clear()
    assert at.look(after_s=1) is None
    assert at.look(after_s=UNKNOWN_GRACE_S).cause is Cause.VANISHED


def test_a_cancel_from_here_is_over_when_the_last_pod_is(scene: Make, server: Server) -> None:
    server.cluster.lingering = True
    at = scene("2x1")
    assert at.look(after_s=1) is None
    at.watcher.begin_user_cancel()
    assert at.look(after_s=1) is None
    assert at.states()[-1] == "RUNNING"
    at.reaped()
    assert at.look(after_s=1).cause is Cause.USER_CANCELLED
    assert at.causes() == [Cause.USER_CANCELLED]


def test_a_cancel_in_the_midst_of_a_restart_is_the_end(scene: Make, server: Server) -> None:
    server.cluster.lingering = True
    at = scene("2x1", {"requeue": True})
    assert at.look(after_s=1) is None
    at.taken(pods.preempted_by_volcano)
    at.watcher.begin_user_cancel()
    at.reaped()
    assert at.look(after_s=1).cause is Cause.USER_CANCELLED
    assert server.cluster.pods == {}


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_an_api_server_that_does_not_answer_for_a_while_costs_nothing(
    scene: Make, server: Server, status: int
) -> None:
    at = scene()
    assert at.look(after_s=1) is None

    def refuse(method: str, path: str) -> None:
        raise Refusal(status, "Because", "not now")

    server.before = refuse
    assert [at.look(after_s=5) for _ in range(10)] == [None] * 10
    server.before = None
    assert at.look(after_s=1) is None
    at.ends(lambda pod: pods.end(pod, 0))
    assert at.look(after_s=1).cause is None
    assert at.apps == 1


@pytest.mark.parametrize("last", ["POST secrets", "POST jobs"])
def test_r02_who_dies_in_the_midst_of_a_submission_has_the_app_once(
    scene: Make, server: Server, last: str
) -> None:
    """The API server has made the Secret, or the job as well, and nobody has heard."""

    def lose(method: str, path: str) -> None:
        if f"{method} {path.rpartition('/')[2]}" == last:
            server.before = lose_all
            raise ConnectionResetError

    def lose_all(method: str, path: str) -> None:
        raise ConnectionResetError

    server.after = lose
    with pytest.raises(LaunchError):
        scene()
    server.before = server.after = None
    at = scene()
    assert at.look(after_s=1) is None
    assert (at.states(), at.apps) == (["RUNNING"], 1)
    assert len(at.bench.events("submitted")) == 1
    assert list(server.cluster.secrets) == [("default", at.app)]
