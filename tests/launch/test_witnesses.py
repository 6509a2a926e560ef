"""Several nodes: who failed first, whatever those said loudest that suffered for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Cause, Event, Kind
from airflow_ett.launch.complaints import is_complaint
from airflow_ett.launch.status import ReplicaStatus, SchedulerStatus
from airflow_ett.launch.verdict import Sighting, Verdict, judge
from tests.launch.conftest import Bench

GLOO = {
    "type": "RuntimeError",
    "message": "[pair.cc:553] Connection closed by peer [10.0.0.2]:17068. This is typically caused "
    "by a remote worker crashing.",
}
VALUE_ERROR = {"type": "ValueError", "message": "bad batch"}
HOSTS = ("n1", "n2")


def reply(node: int, *, sigterm: int | None = None, **rank: Any) -> dict[str, Any]:
    """What the agent of a node with one rank tells; the rank's number is the node's."""
    told = {"rank": node, "exit_code": None, "signal": None, "end_ns": 10, "error": None, **rank}
    fields = {"host": f"{HOSTS[node]}.cluster", "oom_kills": 0, "sigterm_received_ns": sigterm}
    return {"node": node, "ranks": [told], "peer_failed": False, **fields}


def complains(node: int = 0, *, end_ns: int = 5, **fields: Any) -> dict[str, Any]:
    return reply(node, exit_code=1, error=GLOO, end_ns=end_ns, **fields)


def failure(node: int, error: Mapping[str, Any], time_ns: int) -> Event:
    return Event("j", f"t{node}", 1, time_ns, Kind.FAILURE, AttemptId(1), node, error)


def started(node: int, host: str) -> Event:
    data = {"role": "agent", "node": node, "host": host}
    return Event("j", f"a{node}", 0, 1, Kind.PROCESS_STARTED, AttemptId(1), None, data)


def verdict(*replies: Mapping[str, Any], **fields: Any) -> Verdict:
    seen = Sighting("FAILED", "FAILED", replies=replies, hosts=HOSTS)
    return judge(replace(seen, **fields))


@pytest.mark.parametrize("end_ns", [5, 90])
def test_whoever_complains_of_a_peer_was_not_the_first(end_ns: int) -> None:
    """Its process may be over before the other one's is, and its clock may be behind."""
    found = verdict(complains(end_ns=end_ns), reply(1, signal=9))
    assert found.cause is Cause.INFRASTRUCTURE
    assert found.evidence["text"] == "rank 1 on n2 was killed by signal 9 (SIGKILL)."
    assert (found.evidence["node"], found.evidence["host"]) == (1, "n2")


def test_an_error_counts_from_when_it_was_told_and_not_from_its_process_end() -> None:
    """The process lives on for a while, and gets SIGTERM for the failure that it has caused."""
    slow = reply(1, signal=15, error=VALUE_ERROR, end_ns=30, sigterm=20)
    events = [failure(0, GLOO, 12), failure(1, VALUE_ERROR, 15), failure(1, VALUE_ERROR, 30)]
    found = verdict(complains(end_ns=18), {**slow, "peer_failed": True}, events=events)
    assert found.cause is Cause.APPLICATION
    assert found.evidence["text"] == "rank 1 on n2 raised ValueError: bad batch"


def test_who_was_stopped_for_a_peers_failure_was_not_the_first_by_whatever_clock() -> None:
    stopped = reply(0, exit_code=143, end_ns=5, sigterm=3) | {"peer_failed": True}
    found = verdict(stopped, reply(1, signal=11))
    assert found.cause is Cause.APPLICATION
    assert found.evidence["replica"] == 1


def test_an_error_told_after_the_stop_that_it_caused_goes_before_a_complaint() -> None:
    """It clears up before it lets its error out, and meanwhile its peer has failed for it."""
    slow = reply(1, exit_code=1, error=VALUE_ERROR, end_ns=30, sigterm=20) | {"peer_failed": True}
    found = verdict(complains(end_ns=18), slow)
    assert found.cause is Cause.APPLICATION
    assert found.evidence["text"] == "rank 1 on n2 raised ValueError: bad batch"


def stopped_by_its_agent(told: dict[str, Any], *, signal: int | None = 15) -> dict[str, Any]:
    """The reply with one more rank, which its agent has ended for the first one's failure."""
    (first,) = told["ranks"]
    code = None if signal else 143
    peer = {**first, "rank": first["rank"] + 2, "exit_code": code, "signal": signal, "error": None}
    ranks = [first, {**peer, "end_ns": first["end_ns"] + 1}]
    return {**told, "ranks": ranks, "first_failure_rank": first["rank"]}


@pytest.mark.parametrize("signal", [15, None])
def test_who_was_stopped_by_its_own_agent_was_not_the_first(signal: int | None) -> None:
    """Also where the error that came before reads like a complaint: it is the trainer's own."""
    found = verdict(stopped_by_its_agent(complains(), signal=signal), hosts=("n1",))
    assert found.cause is Cause.APPLICATION
    assert found.evidence["replica"] == 0


def test_who_was_stopped_by_its_own_agent_was_not_the_first_by_whatever_clock() -> None:
    dead = stopped_by_its_agent(reply(0, signal=9, end_ns=50))
    found = verdict(stopped_by_its_agent(complains(1, end_ns=5)), dead)
    assert found.cause is Cause.INFRASTRUCTURE
    assert found.evidence["text"] == "rank 0 on n1 was killed by signal 9 (SIGKILL)."


def test_sigterm_from_elsewhere_is_passed_on_and_stays_the_first() -> None:
    told = stopped_by_its_agent(complains(sigterm=3))
    assert verdict(told).cause is Cause.PREEMPTED


def test_a_trainers_own_error_goes_with_the_exit_code_of_its_own_node() -> None:
    events = [started(1, "b"), replace(failure(1, VALUE_ERROR, 5), writer="a1")]
    replicas = (ReplicaStatus("t", 0, "FAILED", 137), ReplicaStatus("t", 1, "FAILED", 1))
    found = verdict(events=events, replicas=replicas)
    assert (found.evidence["node"], found.evidence["exit_code"]) == (1, 1)


def test_a_complaint_goes_before_a_mere_stop_for_it() -> None:
    stopped = reply(1, exit_code=143, end_ns=30, sigterm=20) | {"peer_failed": True}
    assert verdict(complains(end_ns=18), stopped).evidence["replica"] == 0


def test_sigterm_from_elsewhere_comes_before_what_it_leads_to() -> None:
    found = verdict(reply(0, exit_code=143, end_ns=5, sigterm=3), reply(1, signal=6))
    assert found.cause is Cause.PREEMPTED
    assert found.evidence["replica"] == 0


@pytest.mark.parametrize("sigterm", [None, 3])
def test_a_node_without_a_word_is_named_where_the_others_complain(sigterm: int | None) -> None:
    found = verdict(complains(sigterm=sigterm))
    assert found.cause is Cause.INFRASTRUCTURE
    assert found.evidence["text"] == "node 1 on n2 ended without a word, and the others for that."
    assert (found.evidence["node"], found.evidence["host"]) == (1, "n2")


def test_a_node_is_known_by_its_agents_start_where_the_scheduler_tells_of_none() -> None:
    found = verdict(complains(), events=[started(0, "a"), started(1, "b")], hosts=())
    assert found.evidence["host"] == "b"


def test_of_several_nodes_without_a_word_it_says_how_many() -> None:
    found = verdict(complains(), hosts=("n1", "n2", "n3"))
    assert "node 1 and 1 more ended without a word" in found.evidence["text"]
    assert found.evidence["host"] is None


def test_a_lost_node_is_named_by_the_schedulers_word_alone() -> None:
    """The others need not have talked to it: they got SIGTERM."""
    found = verdict(reply(0, exit_code=143, end_ns=5, sigterm=3), raw="NODE_FAIL")
    assert found.cause is Cause.INFRASTRUCTURE
    text = "The scheduler reports NODE_FAIL. node 1 on n2 failed first, without a word."
    assert found.evidence["text"] == text
    assert found.evidence["host"] == "n2"


def test_the_only_node_is_the_lost_one() -> None:
    judged = judge(Sighting("FAILED", "NODE_FAIL", hosts=("n1",)))
    assert judged.evidence["host"] == "n1"
    assert "node 0 on n1 failed first" in judged.evidence["text"]


def test_a_trainers_own_error_tells_of_a_node_whose_agent_died() -> None:
    events = [failure(0, GLOO, 12), failure(1, VALUE_ERROR, 15)]
    found = verdict(complains(), events=events)
    assert found.evidence["text"] == "rank 1 raised ValueError: bad batch"


def test_a_schedulers_exit_code_tells_of_a_node_whose_agent_died() -> None:
    replicas = (ReplicaStatus("t", 0, "CANCELLED", 143), ReplicaStatus("t", 1, "FAILED", 137))
    found = verdict(complains(), replicas=replicas)
    assert found.cause is Cause.INFRASTRUCTURE
    assert found.evidence["text"] == "replica 1 on n2 was killed by signal 9 (SIGKILL)."


def test_where_all_complain_the_first_one_stands() -> None:
    found = verdict(complains(0, end_ns=9), complains(1, end_ns=7))
    assert found.cause is Cause.APPLICATION
    assert found.evidence["replica"] == 1


def test_all_that_was_stopped_from_elsewhere_blames_no_silent_node() -> None:
    found = verdict(reply(0, exit_code=143, end_ns=5, sigterm=3))
    assert found.cause is Cause.PREEMPTED


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("RendezvousConnectionError", "The connection to the C10d store has failed."),
        ("torch.distributed.DistNetworkError", "failed to recv, got 0 bytes"),
        ("DistBackendError", "NCCL error: remote process exited or there was a network error"),
        ("DistBackendError", "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(…)"),
        ("RuntimeError", "[gloo/transport/tcp/unbound_buffer.cc:133] Timed out waiting 30000ms"),
        ("RuntimeError", "[pair.cc:547] Read error [10.0.0.2]:1: Connection reset by peer"),
    ],
)
def test_what_gloo_nccl_and_the_stores_say_of_a_peer(kind: str, message: str) -> None:
    assert is_complaint({"type": kind, "message": message})


@pytest.mark.parametrize(
    "error", [None, {}, VALUE_ERROR, {"type": "RuntimeError", "message": "CUDA error: launch"}]
)
def test_what_is_no_complaint(error: Mapping[str, Any] | None) -> None:
    assert not is_complaint(error)


def running(*hosts: str | None, restart: int = 0, state: str = "RUNNING") -> SchedulerStatus:
    replicas = tuple(ReplicaStatus("t", n, state, host=host) for n, host in enumerate(hosts))
    return SchedulerStatus(state, raw=state, restart=restart, replicas=replicas)


def noted(bench: Bench) -> list[Any]:
    return [event.data.get("hosts") for event in bench.events("scheduler_state")]


def test_the_log_has_each_runs_hosts_once(bench: Bench) -> None:
    watcher = bench.watch()
    for status in (
        running("old", state="PENDING"),
        running("n1", None),
        running("n1", None),
        running("n1", "n2"),
        replace(running("n1", "n2"), reason="again"),
        running("n1", "n2", restart=1),
    ):
        bench.gateway.states[bench.app()] = status
        bench.tick(10)
        watcher.poll()
    assert noted(bench) == [None, ["n1", None], ["n1", "n2"], None, ["n1", "n2"]]


def test_another_process_names_the_host_that_the_scheduler_told_of(bench: Bench) -> None:
    """The agent calls it gpu-1; by then the scheduler may have forgotten."""
    watcher = bench.watch()
    bench.gateway.states[bench.app()] = running("n1")
    watcher.poll()
    bench.reply(AttemptId(1), signal=9)
    bench.ends("FAILED")
    bench.watch(mode="trigger").poll()
    (end,) = bench.events("attempt_ended")
    assert end.data["evidence"]["host"] == "n1"


def test_the_host_of_a_run_that_was_followed_by_another_is_its_own(bench: Bench) -> None:
    watcher = bench.watch()
    for status in (running("n1"), running("n3", restart=1)):
        bench.gateway.states[bench.app()] = status
        bench.reply(AttemptId(1), signal=9)
        bench.tick(10)
        watcher.poll()
    (end,) = bench.events("attempt_ended")
    assert end.data["evidence"]["text"] == "rank 0 on n1 was killed by signal 9 (SIGKILL)."
