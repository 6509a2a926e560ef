"""What becomes of a job whose task fails by itself.

==============================================  ==================================================
how the task ends                               the job
==============================================  ==================================================
deferred, rescheduled, skipped                  left alone: nothing has failed
a newer owner has the job                       left alone
an error, and Airflow tries again               left alone: the next try adopts what lives
any error, and no try follows                   ended: cancelled once if it lives, then closed
==============================================  ==================================================

Any error counts, a bug of ours included: whether a try follows is asked as Airflow asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.retry_policy import RetryAction, RetryPolicy
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
    TaskDeferred,
)

from airflow_ett import config
from airflow_ett.errors import EndedByUser, Fenced, TrainingFailed
from airflow_ett.events import Cause, JobKey
from airflow_ett.hooks.ingest import BestEffortIngest
from airflow_ett.hooks.job import end_job
from airflow_ett.hooks.masking import redact
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.root import Root

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context
    from airflow.sdk.types import Logger

_NO_FAILURE = (TaskDeferred, AirflowRescheduleException, AirflowSkipException)

_NO_RETRY = (AirflowFailException, AirflowSensorTimeout, AirflowTaskTerminated)
"""Airflow fails the task after these and asks no retry policy."""

WAIT_S = 10.0
"""How long a failing task waits for its cancelled training to end."""

KILL_WAIT_S = 3.0
"""The same for a task that is being killed: Airflow ends its process after 5 s."""


@dataclass(slots=True)
class Ending:
    """Sees to the end of a task's job; ``epoch`` is this process's claim of it, if it has one."""

    log: Logger
    policy: RetryPolicy | None
    killed: Callable[[], bool]
    epoch: int | None = None

    @contextlib.contextmanager
    def follows(self, context: Context) -> Iterator[None]:
        """Let the body run; when it fails and no try follows, end the job, then let it fail."""
        try:
            yield
        except (*_NO_FAILURE, Fenced):
            raise
        except BaseException as error:
            if not will_retry(self.policy, error, context):
                self._end(context, error)
            raise

    def _end(self, context: Context, error: BaseException) -> None:
        ti = context["ti"]
        cause = Cause(error.cause) if isinstance(error, TrainingFailed) else Cause.LAUNCH
        why = redact(f"{type(error).__name__}: {error}")
        try:
            settings = config.load()
            key = job_key(settings.deployment, context)
            tries: dict[str, Any] = {"try_number": ti.try_number, "max_tries": ti.max_tries}
            job = open_job(Root.of(settings), key, checkpoint_root="", **tries)
            done = end_job(
                job,
                **tries,
                cause=cause,
                text=f"Its task failed and no try follows: {why}",
                wait_s=KILL_WAIT_S if self.killed() else WAIT_S,
                after=self.epoch,
            )
        except Fenced as newer:
            self.log.info("%s", newer)
        except (Exception, AirflowTaskTimeout) as problem:
            self.log.error(
                "The job of this task could not be ended with it: %s. If its training still runs, "
                "it goes on until the reaper finds it or somebody ends it at its scheduler.",
                redact(str(problem)),
            )
        else:
            if done is not None:
                self.log.info("No try follows; job %s: %s", job.log.key, done)
                BestEffortIngest(job.log.place)(now=True)


def job_key(deployment: str, context: Context) -> JobKey:
    """Return the key of a task instance's job, whichever its generation."""
    ti = context["ti"]
    map_index = -1 if ti.map_index is None else ti.map_index
    return JobKey(deployment, ti.dag_id, ti.run_id, ti.task_id, map_index)


def will_retry(policy: RetryPolicy | None, error: BaseException, context: Context) -> bool:
    """Return whether Airflow will try the task again after ``error``.

    A task that a user has ended is not tried again, whatever the policy says.
    """
    ti = context["ti"]
    if isinstance(error, (*_NO_RETRY, EndedByUser)) or ti.try_number > ti.max_tries:
        return False
    if policy is None:
        return True
    try:
        decision = policy.evaluate(error, ti.try_number, ti.max_tries, context)
    except Exception:  # Airflow falls back to its own rule then
        return True
    return decision.action is not RetryAction.FAIL
