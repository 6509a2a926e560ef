"""What befalls trainings on Slurm, and what Airflow's pages tell of it.

All trainings run side by side: first slurmctld goes away for a while, then a node is lost, jobs are
preempted and the accounts go away. Each test looks at what came of it for one of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from airflow_ett.events import AttemptId
from airflow_ett.metric.format import duration
from airflow_ett.metric.result import Recovery
from tests.slurm.cluster import missing
from tests.system.slurm.conftest import LOST, PREEMPTED, REQUEUE_WAIT_S, Run, World

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.slurm,
    pytest.mark.timeout(400),
    pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}"),
]

SECOND = 1_000_000_000

LOOK = """
import json, sys
from airflow_ett.launch.gateway import Gateway
gateway, found = Gateway(), []
for handle in sys.argv[1:]:
    status = gateway.status(handle)
    hosts = [replica.host for replica in status.replicas]
    lines = {host: gateway.last_lines(handle, node) for node, host in enumerate(hosts)}
    found.append([status.raw, lines])
print(json.dumps(found))
"""
"""What another process knows of apps from their handles alone."""


def first_step_ns(run: Run, attempt: AttemptId) -> int:
    """Return when an attempt's trainer had made its first step beyond what was trained before."""
    metric = run.metric()
    new = (span for span in metric.spans if span.attempt == attempt and span.phase == "train")
    return min(span.begin_ns for span in new)


def ends(run: Run) -> list[Any]:
    """Return how each attempt began and ended."""
    return [(a.id[:2], str(a.layer), a.cause and str(a.cause)) for a in run.metric().attempts]


def length(ns: int) -> str:
    """Return a duration as it stands in a page's text."""
    return " ".join(duration(ns).split())


def shows(run: Run, *words: str) -> None:
    """Its run tab has these words; the numbers of its recoveries are among them."""
    metric, page = run.metric(), run.page()
    for text in (*words, *(length(recovery.ns) for recovery in metric.ttr)):
        assert text in page, text


def resumes(run: Run, acted_s: float, *, waits_s: float) -> Recovery:
    """It was interrupted once, resumed from its newest checkpoint, and what was lost is counted.

    ``acted_s`` is when it was interrupted, ``waits_s`` what Slurm waits at least before it starts.
    """
    metric, (start, again) = run.metric(), run.starts()
    first, second = metric.attempts
    (recovery,) = metric.ttr
    kept = [c.cursor for c in metric.checkpoints if c.committed_ns and c.attempt == first.id]
    assert (start, again, second.cursor_from) == (0, max(kept), max(kept))
    assert recovery.recovered
    assert metric.nof == 1
    # What Session told of its steps, against what its trainers wrote of their own.
    lost = first.cursor_to - again
    assert first.cursor_to - 1 <= min(run.reached()) <= first.cursor_to
    step_ns = first.phases_ns["train"] / first.cursor_to
    assert recovery.utt_ns == pytest.approx(lost * step_ns, rel=0.3, abs=SECOND / 10)
    assert metric.utt_ns == recovery.utt_ns
    assert (second.phases_ns.get("replay", 0) > 0) == (lost > 0)
    back_s = (first_step_ns(run, second.id) - acted_s * SECOND) / SECOND
    # Slurm takes a moment to tell its trainers, or they have taken none since their last word.
    assert max(waits_s, back_s - 6) < recovery.ns / SECOND < back_s + 1
    return recovery


def test_another_process_looks_and_a_user_of_airflow_cancels(
    world: World, runs: dict[str, Run]
) -> None:
    run, two = runs["cancelled"], runs["together"]

    def look(*asked: Run) -> Any:
        argv = (sys.executable, "-c", LOOK, *(each.handle for each in asked))
        env = world.stack.env
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])  # Airflow itself may log before

    assert two.end() == "success", two.told("attempt_ended", "evidence")
    assert look(run, two) == [
        ["RUNNING", {"n2": ["trains from 0"]}],
        ["COMPLETED", {"n2": ["rank 0 counts 2"], "n3": ["rank 1 counts 2"]}],
    ]
    world.stack.api.mark(run.dag_id, run.run_id, "train", "failed")
    run.until(lambda: run.events("job_ended"))
    run.until(lambda: look(run)[0][0] == "CANCELLED")
    assert run.told("cancel_requested", "reason") == ["user_cancelled"]
    assert ends(run) == [((1, 0), "first", "user_cancelled")]
    assert run.metric().nof == 0
    shows(run, "Cancelled by a user")


def test_two_nodes_train_together_to_the_end(runs: dict[str, Run]) -> None:
    run = runs["together"]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    metric = run.metric()
    assert ends(run) == [((1, 0), "first", None)]
    assert (metric.state, metric.quality, metric.nof) == ("succeeded", "complete", 0)
    (attempt,) = metric.attempts
    assert (attempt.hosts, attempt.cursor_to) == (("n2", "n3"), 20)
    assert run.told("scheduler_state", "raw")[-1] == "COMPLETED"
    shows(run, "Success", "The scheduler reports success.")


def test_one_that_never_starts_is_given_up_with_slurms_own_reason(runs: dict[str, Run]) -> None:
    run = runs["never"]
    assert run.end() == "failed"
    assert ends(run) == [((1, 0), "first", "timeout")]
    metric = run.metric()
    assert metric.phases_ns.keys() <= {"queue", "failure_detection"}
    assert 7 < metric.phases_ns["queue"] / SECOND < 20
    assert (metric.nof_by_layer, metric.ett_pct) == ({"none": 1}, None)
    shows(run, "Timeout", "start_timeout 8 s", f"Slurm job {run.job_id}: PartitionDown", "queue")


def test_a_held_one_trains_when_it_is_released(
    runs: dict[str, Run], released_s: float, acted_s: Any
) -> None:
    run = runs["held"]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    assert ends(run) == [((1, 0), "first", None)]
    metric = run.metric()
    reasons = dict.fromkeys(filter(None, run.told("scheduler_state", "reason")))
    assert list(reasons)[:2] == ["PartitionDown", "JobHeldAdmin"]
    queued_s = metric.phases_ns["queue"] / SECOND
    assert -1 < metric.begin_ns / SECOND + queued_s - released_s < 15
    assert 0 < metric.phases_ns["hardware_setup"] / SECOND < 15
    assert metric.nof == 0
    assert metric.attempts[0].waits.keys() >= {"PartitionDown", "JobHeldAdmin"}
    shows(run, "Success", "hardware_setup", length(metric.phases_ns["queue"]))
    shows(run, "PartitionDown", "JobHeldAdmin")


def test_one_whose_slurmctld_is_killed_and_comes_back_goes_on(
    runs: dict[str, Run], acted_s: Any
) -> None:
    run = runs["unwatched"]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    states = [state for state in run.told("scheduler_state", "state") if state != "PENDING"]
    assert states == ["RUNNING", "UNKNOWN", "RUNNING", "SUCCEEDED"]
    assert len(run.starts()) == 1
    assert ends(run) == [((1, 0), "first", None)]
    assert run.metric().nof == 0
    shows(run, "Success")


def test_one_that_ends_while_slurmctld_is_away_has_ended_well(
    runs: dict[str, Run], acted_s: Any
) -> None:
    run = runs["ended unwatched"]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    assert run.told("scheduler_state", "state")[-1] == "SUCCEEDED"
    assert ends(run) == [((1, 0), "first", None)]
    shows(run, "Success")


def test_one_that_is_preempted_resumes_where_its_last_save_was(
    runs: dict[str, Run], acted_s: dict[str, float]
) -> None:
    run = runs["preempted"]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    assert resumes(run, acted_s[PREEMPTED], waits_s=REQUEUE_WAIT_S).utt_ns == 0
    assert ends(run) == [((1, 0), "first", "preempted"), ((1, 1), "scheduler", None)]
    assert run.metric().nof_by_layer == {"scheduler": 1}
    assert "BeginTime" in run.told("scheduler_state", "reason")
    assert len(run.events("submitted")) == len(run.events("claimed")) - 1 == 1
    shows(run, "Preempted", "The scheduler reports PREEMPTED", "In the queue: BeginTime")


def test_one_that_cannot_save_within_slurms_grace_loses_what_it_had_not_saved(
    runs: dict[str, Run], acted_s: dict[str, float]
) -> None:
    run = runs["preempted while saving"]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    recovery = resumes(run, acted_s[PREEMPTED], waits_s=REQUEUE_WAIT_S)
    assert recovery.utt_ns > 0
    assert ends(run) == [((1, 0), "first", "preempted"), ((1, 1), "scheduler", None)]
    shows(run, "Preempted", "The scheduler reports PREEMPTED", length(recovery.utt_ns))


def test_without_accounts_for_a_while_the_trainer_tells_that_it_was_preempted(
    runs: dict[str, Run], acted_s: dict[str, float]
) -> None:
    run = runs["unaccounted"]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    resumes(run, acted_s["n2"], waits_s=REQUEUE_WAIT_S)
    assert ends(run) == [((1, 0), "first", "preempted"), ((1, 1), "scheduler", None)]
    shows(run, "Preempted", "rank 0 on n2 ended after SIGTERM, which nobody here requested.")


def test_one_that_ends_without_accounts_has_ended_well(runs: dict[str, Run], acted_s: Any) -> None:
    run = runs["ended unaccounted"]
    assert ends(run) == [((1, 0), "first", None)]
    shows(run, "Success")


@pytest.mark.parametrize(
    ("name", "second", "layer", "waits_s"),
    [
        ("requeued elsewhere", (1, 1), "scheduler", REQUEUE_WAIT_S + 5),
        ("relaunched elsewhere", (2, 0), "relaunch", 5),
    ],
)
def test_one_whose_node_is_lost_resumes_on_another(
    runs: dict[str, Run],
    acted_s: dict[str, float],
    name: str,
    second: tuple[int, int],
    layer: str,
    waits_s: float,
) -> None:
    run = runs[name]
    assert run.end() == "success", run.told("attempt_ended", "evidence")
    assert resumes(run, acted_s[LOST], waits_s=waits_s).utt_ns > 0
    assert ends(run) == [((1, 0), "first", "infrastructure"), (second, layer, None)]
    metric = run.metric()
    assert metric.nof_by_layer == {layer: 1}
    assert [attempt.hosts for attempt in metric.attempts] == [(LOST,), ("n5",)]
    assert metric.phases_ns["failure_detection"] > 5 * SECOND
    shows(run, "Infrastructure", "The scheduler reports NODE_FAIL.", LOST, "n5")


def test_one_beyond_its_time_limit_is_a_timeout_and_has_saved(runs: dict[str, Run]) -> None:
    run = runs["limited"]
    assert run.end() == "failed"
    assert ends(run) == [((1, 0), "first", "timeout")]
    metric = run.metric()
    assert (metric.nof_by_layer, metric.nof_by_cause) == ({"none": 1}, {"timeout": 1})
    assert metric.checkpoints[-1].cursor == metric.attempts[0].cursor_to
    assert metric.utt_ns == 0
    shows(run, "Timeout", "The scheduler reports TIMEOUT.")


def test_the_dag_tab_has_them_all(world: World, runs: dict[str, Run], acted_s: Any) -> None:
    others = {name: run for name, run in runs.items() if name != "never"}
    for run in others.values():
        run.end()
    page = world.page("dag/slurm")
    for run in others.values():
        metric = run.metric()
        cells = (
            f"{len(metric.attempts)} {metric.nof}",
            length(sum(recovery.ns for recovery in metric.ttr)) if metric.ttr else "–",
        )
        row = page.partition(f" {run.run_id} ")[2]
        assert " ".join(cells) in row[:200], (run.run_id, cells)
    failures = sum(run.metric().nof for run in others.values())
    assert f"Failures per job {failures / len(others):.2f}" in page
