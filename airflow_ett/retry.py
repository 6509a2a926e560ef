"""Retries in seconds for what a relaunch within the try does not mend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

from airflow_ett.errors import ConfigurationError, TrainingFailed
from airflow_ett.events import USER_CAUSES, Cause

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

RETRY, FAIL = "retry", "fail"

DELAYS_S = (0.0, 4.0, 16.0, 60.0)


@dataclass(frozen=True, kw_only=True)
class ETTRetryPolicy(RetryPolicy):
    """Retries a failed training at once, then after 4, 16, 60 s; each try resumes.

    ``retries`` of the task bounds the number of tries. Never retried are a wrong configuration, a
    user's wish, and an error of the trainer's own that came twice at the same cursor with nothing
    saved in between: it would come a third time. Preemptions and infrastructure failures come here
    only when ``max_relaunches`` is used up.

    Memory may have been short for a reason that the next try does not meet (a leak, a neighbour on
    the node), and a try that ran into its time limit resumes further on; Airflow, too, retries
    both. Hence ``retry`` by default, where each try costs no more than what was not saved.

    :param out_of_memory: ``retry`` or ``fail`` after the cause ``out_of_memory``.
    :param timeout: ``retry`` or ``fail`` after the cause ``timeout``: ``execution_timeout`` and
        ``start_timeout``, which each try is given anew.
    :param delays: seconds before the second try, the third, and so on; the last one stays.

    Raises :class:`ConfigurationError` that names the parameter.
    """

    out_of_memory: str = RETRY
    timeout: str = RETRY
    delays: Sequence[float] = DELAYS_S

    def __post_init__(self) -> None:
        for parameter in ("out_of_memory", "timeout"):
            value = getattr(self, parameter)
            if value not in (RETRY, FAIL):
                raise ConfigurationError(parameter, f"must be {RETRY!r} or {FAIL!r}, not {value!r}")
        delays = self.delays
        if isinstance(delays, str) or not isinstance(delays, Sequence) or not delays:
            raise ConfigurationError("delays", f"must be a list of seconds, not {delays!r}")
        for delay in delays:
            number = isinstance(delay, int | float) and not isinstance(delay, bool)
            if not (number and 0 <= delay < math.inf):
                raise ConfigurationError("delays", f"must be seconds, 0 or more, not {delay!r}")

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Context | None = None,
    ) -> RetryDecision:
        """Return when to try again, if at all; who asks, and with which context, is no matter."""
        refusal = self._refusal(exception)
        if refusal is not None:
            return RetryDecision.fail(refusal)
        delay_s = self.delays[min(try_number, len(self.delays)) - 1]
        cause = getattr(exception, "cause", type(exception).__name__)
        return RetryDecision.retry(
            timedelta(seconds=delay_s), f"cause {cause}: resume in {delay_s:g} s"
        )

    def _refusal(self, exception: BaseException) -> str | None:
        """Return why another try would be in vain or unwanted, None where it would not."""
        if isinstance(exception, ConfigurationError):
            return f"configuration: {exception}"
        if not isinstance(exception, TrainingFailed):
            return None
        cause = exception.cause
        if cause in USER_CAUSES:
            return f"cause {cause}: a user's wish"
        if exception.repeated:
            first_line = str(exception).partition("\n")[0]
            return f"the same error twice at cursor {exception.cursor}: {first_line}"
        chosen: dict[str, str] = {
            Cause.OUT_OF_MEMORY: self.out_of_memory,
            Cause.TIMEOUT: self.timeout,
        }
        if chosen.get(cause) == FAIL:
            return f"cause {cause}, which the task's retry policy does not retry"
        return None
