"""Whoever dies, the training goes on: one submission, adopted, and its numbers unharmed."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from airflow_ett.events import Layer, read_log
from airflow_ett.metric import measure

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(400)]


def measured(training: Any, generation: int = 1) -> Any:
    """Return the job's numbers, checked for the sums that always hold."""
    run_dir = training.run_dir(generation)
    metric = measure([event for path in run_dir.logs() for event in read_log(path).events])
    assert sum(metric.phases_ns.values()) == metric.wall_ns
    assert sum(metric.levels_ns.values()) == metric.wall_ns
    return metric


def layers(training: Any) -> list[str]:
    return [event.data["layer"] for event in training.events("submitted")]


def test_r01_a_killed_task_process_leaves_the_training_to_the_next_try(train: Any) -> None:
    training = train("training_held", steps=400)
    training.until_cursor(5)
    os.kill(training.watching_pid(), signal.SIGKILL)
    assert training.end() == "success"
    assert layers(training) == [Layer.FIRST]
    assert len(training.starts()) == 1
    assert training.never_twice()
    assert len(training.events("adopted")) == 1
    assert training.cursor() == 400
    assert measured(training).nof == 0


def test_a_killed_triggerer_leaves_the_training_to_the_next_one(
    train: Any, airflow_stack: Any
) -> None:
    training = train("training_deferred", steps=800)
    training.until_cursor(5)
    training.until(lambda: training.events("claimed")[-1].data["mode"] == "trigger")
    airflow_stack.stop_component("triggerer", grace_s=0)
    airflow_stack.start_component("triggerer")
    assert training.end(240) == "success"
    assert layers(training) == [Layer.FIRST]
    assert len(training.starts()) == 1
    modes = [event.data["mode"] for event in training.events("claimed")]
    assert modes.count("trigger") >= 2
    assert measured(training).nof == 0


@pytest.mark.parametrize("mode", ["held", "deferred"])
def test_an_error_then_a_kill(train: Any, mode: str) -> None:
    training = train(f"training_{mode}", steps=160, fail_first_at=20)
    training.until(lambda: layers(training) == [Layer.FIRST, Layer.AIRFLOW])
    training.until_cursor(60)
    os.kill(training.starts()[-1], signal.SIGKILL)
    assert training.end() == "success"
    assert layers(training) == [Layer.FIRST, Layer.AIRFLOW, Layer.RELAUNCH]
    assert training.never_twice()
    metric = measured(training)
    assert [attempt["cause"] for attempt in metric.as_dict()["attempts"]] == [
        "application",
        "infrastructure",
        None,
    ]
    assert metric.nof == 2
    assert metric.state == "succeeded"
    output = training.api.xcom(training.dag_id, training.run_id, "train")
    assert output["cursor"] == 160
    assert training.api.xcom(training.dag_id, training.run_id, "train", "run_dir") == str(
        training.run_dir().path
    )
    log = training.api.log(training.dag_id, training.run_id, "train", 1)
    assert "[rank 0] training from 0" in log
    assert "ValueError: induced failure" in log


@pytest.mark.parametrize("state", ["failed", "success"])
@pytest.mark.parametrize("mode", ["held", "deferred"])
def test_r05_marking_the_task_cancels_once(train: Any, mode: str, state: str) -> None:
    training = train(f"training_{mode}", steps=4000)
    training.until_cursor(3)
    if mode == "deferred":
        training.until(lambda: training.events("claimed")[-1].data["mode"] == "trigger")
    training.api.mark(training.dag_id, training.run_id, "train", state)
    training.until(training.trainer_is_gone)
    (cancel,) = training.until(lambda: training.events("cancel_requested"))
    assert cancel.data["reason"] == "user_cancelled"
    (end,) = training.until(lambda: training.events("job_ended"))
    assert end.data["state"] == "cancelled"
    assert len(training.starts()) == 1
    assert measured(training).nof == 0


@pytest.mark.parametrize("linger_s", [0, 5])
@pytest.mark.parametrize("mode", ["held", "deferred"])
def test_r07_execution_timeout_means_the_same_in_both_modes(
    train: Any, mode: str, linger_s: int
) -> None:
    training = train(f"training_timed_{mode}", steps=4000, linger_s=linger_s)
    assert training.end() == "failed"
    (cancel,) = training.events("cancel_requested")
    assert cancel.data["reason"] == "timeout"
    assert [e.data["cause"] for e in training.events("attempt_ended")] == ["timeout"]
    (end,) = training.events("job_ended")
    assert (end.data["state"], end.data["cause"]) == ("failed", "timeout")
    training.until(training.trainer_is_gone)
    metric = measured(training)
    assert (metric.nof, metric.as_dict()["nof_by_cause"]) == (1, {"timeout": 1})


@pytest.mark.parametrize("mode", ["held", "deferred"])
def test_r18_a_clear_restarts_and_resumes_the_same_job(train: Any, mode: str) -> None:
    training = train(f"training_{mode}", steps=260)
    training.until_cursor(20)
    if mode == "deferred":
        training.until(lambda: training.events("claimed")[-1].data["mode"] == "trigger")
    training.api.clear(training.dag_id, training.run_id, "train")
    training.until(lambda: len(training.starts()) == 2)
    assert training.end() == "success"
    assert training.never_twice()
    assert layers(training) == [Layer.FIRST, Layer.AIRFLOW]
    metric = measured(training)
    assert [a["cause"] for a in metric.as_dict()["attempts"]] == ["user_restart", None]
    assert metric.nof == 0
    assert not training.run_dir(2).path.exists()


@pytest.mark.parametrize("mode", ["held", "deferred"])
def test_a_clear_right_after_a_cancel_waits_for_a_trainer_that_is_still_ending(
    train: Any, mode: str
) -> None:
    training = train(f"training_{mode}", steps=4000, linger_s=9 if mode == "held" else 24)
    training.until_cursor(20)
    if mode == "deferred":
        training.until(lambda: training.events("claimed")[-1].data["mode"] == "trigger")
    training.api.mark(training.dag_id, training.run_id, "train", "failed")
    training.until(lambda: training.events("job_ended"))
    assert not training.trainer_is_gone()
    training.api.clear(training.dag_id, training.run_id, "train")
    reached = training.cursor()
    training.until_cursor(reached + 3)
    assert training.never_twice()
    assert len(training.starts()) == 2
    assert len(training.events("submitted", generation=2)) == 1
    if mode == "deferred":  # Airflow tells no trigger of a mark before it has started
        training.until(lambda: training.events("claimed", 2)[-1].data["mode"] == "trigger")
    training.api.mark(training.dag_id, training.run_id, "train", "failed")
    training.until(training.trainer_is_gone)


@pytest.mark.parametrize("mode", ["held", "deferred"])
def test_a_run_deleted_and_made_again_runs_what_it_asks_for(train: Any, mode: str) -> None:
    training = train(f"training_{mode}", steps=4000)
    training.until_cursor(20)
    if mode == "deferred":
        training.until(lambda: training.events("claimed")[-1].data["mode"] == "trigger")
    api, dag_id, run_id = training.api, training.dag_id, training.run_id
    api.request("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}", json={"state": "failed"})
    api.request("DELETE", f"/dags/{dag_id}/dagRuns/{run_id}")
    api.trigger(dag_id, run_id, {"place": str(training.place), "steps": 200})
    assert training.end() == "success"
    assert training.never_twice()
    assert len(training.starts()) == 2
    assert training.cursor() == 200


def test_a_clear_after_the_end_begins_the_next_generation(train: Any) -> None:
    training = train("training_held", steps=5)
    assert training.end() == "success"
    (training.place / "cursor").unlink()
    training.api.clear(training.dag_id, training.run_id, "train")
    training.until(lambda: training.events("job_ended", generation=2))
    assert measured(training, 2).state == "succeeded"
    assert layers(training) == [Layer.FIRST]


def test_a_resume_uri_that_is_not_there_fails_at_once_by_name(
    airflow_stack: Any, request: Any
) -> None:
    api, run_id = airflow_stack.api, request.node.name
    api.wait_for_dag("training_wrong")
    api.trigger("training_wrong", run_id, {"resume": "/nowhere/checkpoint"})
    assert api.wait_for_run("training_wrong", run_id, timeout_s=90) == "failed"
    assert len(api.tries("training_wrong", run_id, "train")) == 1
    log = api.log("training_wrong", run_id, "train", 1)
    assert "resume: " in log
    assert "/nowhere/checkpoint" in log
