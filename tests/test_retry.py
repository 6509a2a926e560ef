"""``ETTRetryPolicy``: in seconds, not after five minutes, and not where it cannot help."""

from airflow.sdk.definitions.retry_policy import RetryAction

from airflow_ett.errors import ConfigurationError, TrainingFailed
from airflow_ett.events import Cause
from airflow_ett.retry import ETTRetryPolicy

POLICY = ETTRetryPolicy()


def test_a_failed_training_is_retried_in_seconds() -> None:
    error = TrainingFailed("rank 0 raised", cause=Cause.APPLICATION)
    delays = []
    for number in range(1, 6):
        decision = POLICY.evaluate(error, number, 9)
        assert decision.action is RetryAction.RETRY
        assert decision.retry_delay is not None
        delays.append(decision.retry_delay.total_seconds())
    assert delays == [0, 4, 16, 60, 60]


def test_a_wrong_configuration_fails_at_once() -> None:
    decision = POLICY.evaluate(ConfigurationError("resume", "there is no checkpoint"), 1, 9)
    assert decision.action is RetryAction.FAIL
    assert decision.reason is not None
    assert "resume" in decision.reason


def test_a_users_wish_is_not_retried() -> None:
    for cause in (Cause.USER_CANCELLED, Cause.USER_RESTART):
        assert POLICY.evaluate(TrainingFailed("x", cause=cause), 1, 9).action is RetryAction.FAIL


def test_the_reason_names_the_cause() -> None:
    reason = POLICY.evaluate(TrainingFailed("x", cause=Cause.VANISHED), 1, 9).reason
    assert reason is not None
    assert "vanished" in reason
