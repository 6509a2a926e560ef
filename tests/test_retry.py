"""``ETTRetryPolicy``: in seconds, not after five minutes, and not where it cannot help."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.retry_policy import RetryAction

from airflow_ett.errors import ConfigurationError, TrainingFailed
from airflow_ett.events import Cause
from airflow_ett.operators import TorchXTrainingOperator
from airflow_ett.retry import ETTRetryPolicy

POLICY = ETTRetryPolicy()
GOOD: dict[str, Any] = {"task_id": "train", "component_args": ["--m", "pkg.train"]}


def delays(policy: ETTRetryPolicy, tries: int = 5) -> list[float]:
    error = TrainingFailed("rank 0 raised", cause=Cause.APPLICATION)
    found = []
    for number in range(1, tries + 1):
        decision = policy.evaluate(error, number, 9)
        assert decision.action is RetryAction.RETRY
        assert decision.retry_delay is not None
        found.append(decision.retry_delay.total_seconds())
    return found


def action(policy: ETTRetryPolicy, error: BaseException) -> RetryAction:
    return policy.evaluate(error, 1, 9).action


def test_a_failed_training_is_retried_in_seconds() -> None:
    assert delays(POLICY) == [0, 4, 16, 60, 60]
    assert delays(ETTRetryPolicy(delays=[2.5]), 2) == [2.5, 2.5]


def test_a_wrong_configuration_fails_at_once() -> None:
    decision = POLICY.evaluate(ConfigurationError("resume", "there is no checkpoint"), 1, 9)
    assert decision.action is RetryAction.FAIL
    assert decision.reason is not None
    assert "resume" in decision.reason


def test_a_users_wish_is_not_retried() -> None:
    for cause in (Cause.USER_CANCELLED, Cause.USER_RESTART):
        assert action(POLICY, TrainingFailed("x", cause=cause)) is RetryAction.FAIL


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.USER_CANCELLED, Cause.USER_RESTART}))
def test_every_other_cause_is_retried_unless_asked_otherwise(cause: Cause) -> None:
    assert action(POLICY, TrainingFailed("x", cause=cause)) is RetryAction.RETRY
    assert action(POLICY, KeyError("a bug")) is RetryAction.RETRY


@pytest.mark.parametrize("cause", [Cause.OUT_OF_MEMORY, Cause.TIMEOUT])
def test_memory_and_time_may_be_left_to_fail(cause: Cause) -> None:
    policy = ETTRetryPolicy(**{cause.value: "fail"})
    refused = policy.evaluate(TrainingFailed("x", cause=cause), 1, 9)
    assert refused.action is RetryAction.FAIL
    assert refused.reason is not None
    assert cause in refused.reason
    assert action(policy, TrainingFailed("x", cause=Cause.APPLICATION)) is RetryAction.RETRY


def test_the_same_error_at_the_same_cursor_twice_fails_fast_and_says_so() -> None:
    text = "rank 0 on gpu-1 raised ValueError: bad batch"
    full = f"{text}\nLast lines of rank 0:\n  step 7"
    error = TrainingFailed(full, cause=Cause.APPLICATION, cursor=4096, repeated=True)
    decision = POLICY.evaluate(error, 1, 9)
    assert decision.action is RetryAction.FAIL
    assert decision.reason == f"the same error twice at cursor 4096: {text}"


def test_the_reason_names_the_cause() -> None:
    reason = POLICY.evaluate(TrainingFailed("x", cause=Cause.VANISHED), 1, 9).reason
    assert reason is not None
    assert "vanished" in reason


def test_the_decision_is_the_same_whoever_asks() -> None:
    error = TrainingFailed("x", cause=Cause.TIMEOUT)
    context: Any = {"ti": object()}
    assert POLICY.evaluate(error, 2, 9) == POLICY.evaluate(error, 2, 9, context)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("out_of_memory", "never"),
        ("timeout", None),
        ("delays", []),
        ("delays", "10"),
        ("delays", 10),
        ("delays", [-1]),
        ("delays", [float("inf")]),
        ("delays", [True]),
    ],
)
def test_r19_a_bad_option_is_named(parameter: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ETTRetryPolicy(**{parameter: value})
    assert caught.value.parameter == parameter


def test_policies_compare_by_their_options_and_survive_a_copy() -> None:
    policy = ETTRetryPolicy(timeout="fail", delays=[1])
    assert copy.deepcopy(policy) == policy == ETTRetryPolicy(timeout="fail", delays=[1])
    assert policy != POLICY


def test_a_mapped_task_has_the_same_defaults() -> None:
    with DAG("mapped", schedule=None):
        mapped = TorchXTrainingOperator.partial(task_id="train").expand(
            component_args=[["--m", "a"], ["--m", "b"]]
        )
    plain = TorchXTrainingOperator(**GOOD)
    one = mapped.unmap({"component_args": ["--m", "a"]})
    for task in (mapped, one):
        assert (task.retry_policy, task.retry_delay) == (plain.retry_policy, plain.retry_delay)
    assert plain.retry_policy == POLICY
    assert plain.retry_delay == timedelta(seconds=1)
    assert one.multiple_outputs is True


def test_what_the_dag_sets_wins() -> None:
    wish = {"retry_policy": ETTRetryPolicy(timeout="fail"), "retry_delay": timedelta(minutes=1)}
    with DAG("set", schedule=None, default_args=wish):
        plain = TorchXTrainingOperator(**GOOD)
        mapped = TorchXTrainingOperator.partial(task_id="m").expand(component_args=[["--m", "a"]])
    one = mapped.unmap({"component_args": ["--m", "a"]})
    for task in (plain, mapped, one):
        assert task.retry_policy == wish["retry_policy"]
        assert task.retry_delay == wish["retry_delay"]


def test_airflow_stores_that_there_is_a_policy() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG("stored", schedule=None) as dag:
        TorchXTrainingOperator(**GOOD)
        TorchXTrainingOperator.partial(task_id="mapped").expand(component_args=[["--m", "a"]])
    again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    for task_id in ("train", "mapped"):
        assert again.get_task(task_id).has_retry_policy
