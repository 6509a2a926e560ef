"""Retries in seconds for what a relaunch within the try does not mend."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

from airflow_ett.errors import ConfigurationError, TrainingFailed
from airflow_ett.events import USER_CAUSES

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

_DELAYS_S = (0.0, 4.0, 16.0, 60.0)


class ETTRetryPolicy(RetryPolicy):
    """Retries a failed training at once, then after 4, 16, 60 s; each try resumes.

    Preemptions and infrastructure failures never come here: they are relaunched within the try
    until ``max_relaunches`` is used up. A wrong configuration and a user's cancel are not retried.
    ``retries`` of the task still bounds the number of tries.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Context | None = None,
    ) -> RetryDecision:
        """Return when to try again, if at all."""
        if isinstance(exception, ConfigurationError):
            return RetryDecision.fail(f"configuration: {exception}")
        if isinstance(exception, TrainingFailed) and exception.cause in USER_CAUSES:
            return RetryDecision.fail(f"cause {exception.cause}: a user's wish")
        delay_s = _DELAYS_S[min(try_number, len(_DELAYS_S)) - 1]
        cause = getattr(exception, "cause", type(exception).__name__)
        return RetryDecision.retry(
            timedelta(seconds=delay_s), f"cause {cause}: resume in {delay_s:g} s"
        )
