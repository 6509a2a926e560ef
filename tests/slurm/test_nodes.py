"""Trainings of several nodes on a real Slurm: where they ran, and which node failed first.

All nodes of the cluster are this machine: their agents call it by its own name, Slurm n1, n2, n3.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.events import Cause
from airflow_ett.launch.complaints import is_complaint
from airflow_ett.metric.report import render
from airflow_ett.ui.run.attempts import attempts
from tests.slurm.cluster import missing
from tests.slurm.conftest import Training

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}"),
]

LINE = "\n        "
TOGETHER = f"dist.all_reduce(torch.ones(1)){LINE}"
ON_NODE_1 = f"if number == 5 and os.environ['GROUP_RANK'] == '1':{LINE}    "


def fails(training: Training, body: str) -> dict[str, Any]:
    """Run two nodes, the second of which fails; return the evidence for the attempt's end."""
    training.begin(TOGETHER + ON_NODE_1 + body, "-j", "2x1", every=1000, steps=10_000)
    training.until(lambda: training.events("attempt_ended"), timeout_s=180)
    (ended, *_) = training.events("attempt_ended")
    evidence: dict[str, Any] = ended.data["evidence"]
    return {"cause": ended.data["cause"], **evidence}


def replies(training: Training) -> dict[int, Any]:
    """What the nodes' agents told, by node."""
    attempt = training.events("attempt_ended")[0].attempt
    assert attempt is not None
    return {reply["node"]: reply for reply in training.log.replies(attempt)}


def test_all_ranks_of_all_nodes_are_heard_and_the_hosts_stand_with_the_attempt(
    training: Training,
) -> None:
    late = "if os.environ['RANK'] == '3' and number == 1:" + LINE
    slow = f"{late}    with ett.phase('evaluation'): time.sleep(1.5)"
    training.begin(f"print('rank', os.environ['RANK'], flush=True){LINE}{slow}", "-j", "2x2")
    assert training.ends().cause is None
    told = training.log.submission_events(1)
    assert {e.rank for e in told if e.kind == "process_ended"} >= {0, 1, 2, 3}
    agents = {e.data["node"] for e in told if e.kind == "process_started" and e.rank is None}
    assert agents == {0, 1}
    assert {node: len(reply["ranks"]) for node, reply in replies(training).items()} == {0: 2, 1: 2}
    for node in (0, 1):
        assert {f"rank {2 * node}", f"rank {2 * node + 1}"} <= {*training.output(node).splitlines()}
    assert [e.data["hosts"] for e in training.events("scheduler_state") if "hosts" in e.data] == [
        ["n1", "n2"]
    ]
    (attempt,) = training.metric().attempts
    assert attempt.hosts == ("n1", "n2")
    assert (attempt.slowest["evaluation"].rank, attempt.slowest["evaluation"].host) == (3, "n2")
    result = training.metric().as_dict()
    assert attempts(result, show_all=False).shown[0].hosts == "n[1-2]"
    assert "n[1-2]" in render([result])


def test_a_survivor_that_ends_before_the_culprit_has_is_not_blamed(training: Training) -> None:
    """What closes its connections first may take long to end."""
    slow = f"try: raise ValueError('bad batch'){LINE}    finally:"
    found = fails(training, f"{slow} dist.destroy_process_group(); time.sleep(3)")
    heard = {node: reply["ranks"][0] for node, reply in replies(training).items()}
    assert heard[0]["end_ns"] < heard[1]["end_ns"]
    assert is_complaint(heard[0]["error"])
    assert found["cause"] == Cause.APPLICATION
    assert found["text"] == "rank 1 on n2 raised ValueError: bad batch"
    outcome = training.ends()
    assert outcome.cause is Cause.APPLICATION
    assert "rank 1 on n2 raised ValueError: bad batch" in outcome.message
    assert "Last lines of node 1's output" in outcome.message


def test_a_node_that_ended_without_a_word_is_named(training: Training) -> None:
    found = fails(training, "os.kill(os.getppid(), 9)")
    assert [*replies(training)] == [0]
    assert found["cause"] == Cause.INFRASTRUCTURE
    assert found["text"] == "node 1 on n2 ended without a word, and the others for that."
    assert found["host"] == "n2"
    assert found["log"].endswith("trainer-1")
