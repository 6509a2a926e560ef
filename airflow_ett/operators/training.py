"""Launch a training through TorchX and see it through: ``TorchXTrainingOperator``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_ett.errors import ConfigurationError, Fenced, JobLogError, LaunchError, TrainingFailed
from airflow_ett.events import Cause, JobKey
from airflow_ett.hooks.ingest import BestEffortIngest
from airflow_ett.hooks.job import JobHold, check_checkpoints, end_job
from airflow_ett.hooks.kill import Kill, airflow_state, meaning
from airflow_ett.hooks.masking import redact
from airflow_ett.hooks.torchx import DEFAULT_SCHEDULER, TorchXHook
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.former import Former
from airflow_ett.launch.limits import UNKNOWN_GRACE_S, Limits
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.preparation import validate_static
from airflow_ett.launch.request import Request
from airflow_ett.launch.watcher import Watcher
from airflow_ett.links import LINKS, LinkBoard
from airflow_ett.operators.parameters import seconds
from airflow_ett.retry import ETTRetryPolicy
from airflow_ett.triggers.training import trigger_for

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

_MARGIN_NS = 2_000_000_000
"""Our deadline lies this far before Airflow's own ``execution_timeout``."""

_KILL_WAIT_S = 3.0
"""Airflow kills a task's process 5 s after it told it to stop."""

_KILL_LOOK_S = 0.2

_LOST_PROCESS_DELAY = timedelta(seconds=1)
"""Airflow asks no retry policy about a task process that was killed; it waits for this long."""


class TorchXTrainingOperator(BaseOperator):
    """Train through TorchX; survive crashes and preemptions; resume from the newest checkpoint.

    Returns ``{job, handle, cursor, checkpoint, run_dir}``, each also as an XCom of its own, so that
    ``train.output["checkpoint"]`` is the anchor checkpoint's URI.

    :param component: a TorchX component: ``train`` (ours, with agent and metric),
        ``dist.torchrun``, ``utils.sh``, ``path/file.py:function``, ``package.module:function``.
    :param component_args: the component's arguments, as on the command line of ``torchx run``.
    :param scheduler: a TorchX scheduler; default: the connection's, else ``local_detached``.
    :param cfg: options of the scheduler, laid over the connection's.
    :param resource: a TorchX named resource for every role.
    :param env: environment variables of every role.
    :param checkpoint_uri: where checkpoints go, below it one folder per job.
    :param resume: ``auto`` (the newest committed checkpoint of this job), ``never``, or a
        checkpoint's URI.
    :param init_from: a checkpoint's URI to take the weights from; the cursor starts at 0.
    :param poll_interval: seconds between looks at the scheduler. They are faster after a change
        (down to a quarter) and slower in a quiet training whose end shows by itself (up to five).
    :param start_timeout: how long a submission may wait for its first process, in seconds or as a
        timedelta; then it is cancelled, cause ``timeout``. Default: for ever.
    :param unknown_grace: how long the scheduler may not know the app, or not answer, before the
        trainer's own word decides, or the attempt is given up as ``vanished``.
    :param deferrable: watch from the triggerer, without holding a worker. True by default, since
        trainings last for days.
    :param max_relaunches: relaunches within one try after preemption or infrastructure failure,
        counted anew whenever a committed checkpoint has advanced.
    :param torchx_conn_id: a connection of type ``torchx``.

    ``retry_policy`` defaults to :class:`airflow_ett.retry.ETTRetryPolicy`, ``retry_delay`` to one
    second (Airflow's own five minutes would apply where a task process is killed).

    Raises :class:`ConfigurationError` at DAG parse for what can be known then.
    """

    template_fields: Sequence[str] = (
        "component",
        "component_args",
        "scheduler",
        "cfg",
        "resource",
        "env",
        "checkpoint_uri",
        "resume",
        "init_from",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"cfg": "json", "env": "json"}
    ui_color = "#5c88c5"
    operator_extra_links = LINKS

    def __init__(
        self,
        *,
        component: str = "train",
        component_args: Sequence[str] = (),
        scheduler: str | None = None,
        cfg: Mapping[str, Any] | None = None,
        resource: str | None = None,
        env: Mapping[str, str] | None = None,
        checkpoint_uri: str | None = None,
        resume: str = "auto",
        init_from: str | None = None,
        poll_interval: float = 1.0,
        start_timeout: float | timedelta | None = None,
        unknown_grace: float | timedelta = UNKNOWN_GRACE_S,
        deferrable: bool = True,
        max_relaunches: int = 3,
        torchx_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retry_policy", ETTRetryPolicy())
        kwargs.setdefault("retry_delay", _LOST_PROCESS_DELAY)
        kwargs.setdefault("multiple_outputs", True)
        super().__init__(**kwargs)
        self.component = component
        self.component_args = component_args
        self.scheduler = scheduler
        self.cfg = cfg
        self.resource = resource
        self.env = env
        self.checkpoint_uri = checkpoint_uri
        self.resume = resume
        self.init_from = init_from
        self.poll_interval = poll_interval
        self.start_timeout = start_timeout
        self.unknown_grace = unknown_grace
        self.deferrable = deferrable
        self.max_relaunches = max_relaunches
        self.torchx_conn_id = torchx_conn_id
        self._killed = False
        self._check_parameters()

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Claim the job, submit or adopt, and watch it here or from the triggerer."""
        hold = self._hold(context)
        try:
            watcher = hold.take("task", self.poll_interval)
            action = watcher.begin()
        except LaunchError as error:
            failed = TrainingFailed(redact(str(error)), cause=Cause.LAUNCH)
            self._fail(context, hold.key, hold.run_dir, failed)
        except ConfigurationError as error:
            self._close(context, hold.key, hold.run_dir, Cause.LAUNCH)
            raise error
        self.log.info("Training %s: %s, run directory %s", watcher.handle, action, hold.run_dir)
        links = LinkBoard(hold.key)
        links(watcher.places, now=True)
        if self._killed:
            self._stop(hold, watcher)
        if self.deferrable:
            self.defer(
                trigger=trigger_for(hold, self.poll_interval),
                method_name="execute_complete",
                kwargs={"key": dict(hold.key), "run_dir": hold.run_dir},
            )
        try:
            outcome = self._watch(hold, watcher, links)
        except AirflowTaskTimeout:
            # The training was told to end 2 s ago and has not yet: the next try waits for that.
            text = (
                f"Job {watcher.handle} was cancelled at its execution_timeout and is still ending."
            )
            self._fail(context, hold.key, hold.run_dir, TrainingFailed(text, cause=Cause.TIMEOUT))
        return self._finish(context, hold.key, hold.run_dir, outcome)

    def execute_complete(
        self, context: Context, event: dict[str, Any], key: dict[str, Any], run_dir: str
    ) -> dict[str, Any]:
        """Turn the trigger's outcome into the task's result."""
        cause = Cause(event["cause"]) if event["cause"] else None
        return self._finish(context, key, run_dir, Outcome(**{**event, "cause": cause}))

    def on_kill(self) -> None:
        """Only set a flag: this runs inside a signal handler; the watch loop asks what it means."""
        self._killed = True

    def _watch(self, hold: JobHold, watcher: Watcher, links: LinkBoard) -> Outcome:
        ingest = BestEffortIngest(Path(hold.run_dir))
        while True:
            self._pause(watcher.pause_s)
            if self._killed:
                self._stop(hold, watcher)
            try:
                outcome = watcher.poll()
                for line in watcher.read_log().splitlines():
                    self.log.info("[rank 0] %s", line)
            except Fenced:
                raise
            except JobLogError as error:
                self.log.warning("%s Watching goes on.", error)
                continue
            links(watcher.places, now=outcome is not None)
            if outcome is not None:
                return outcome
            ingest()

    def _pause(self, seconds: float) -> None:
        """Sleep, or return as soon as the task is killed."""
        until = time.monotonic() + seconds
        while not self._killed and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _KILL_LOOK_S))

    def _stop(self, hold: JobHold, watcher: Watcher) -> NoReturn:
        """Act on a kill by what Airflow's own state says, and end this process's work."""
        kill = meaning(airflow_state(hold.key))
        self.log.info("Task stopped: %s", kill)
        if kill is Kill.CLEARED:
            watcher.user_restart()
            raise TrainingFailed(
                "Cleared by a user; the next try resumes.", cause=Cause.USER_RESTART
            )
        if kill is Kill.ENDED:
            watcher.user_cancel(_KILL_WAIT_S)
            raise TrainingFailed("Ended by a user.", cause=Cause.USER_CANCELLED)
        raise TrainingFailed(
            "The worker was stopped; the training goes on and the next try adopts it.",
            cause=Cause.UNKNOWN,
        )

    def _finish(
        self, context: Context, key: Mapping[str, Any], run_dir: str, outcome: Outcome
    ) -> dict[str, Any]:
        if outcome.cause is not None:
            error = TrainingFailed(outcome.message, cause=outcome.cause, cursor=outcome.cursor)
            self._fail(context, key, run_dir, error)
        BestEffortIngest(Path(run_dir))(now=True)
        return {
            "job": outcome.job,
            "handle": outcome.handle,
            "cursor": outcome.cursor,
            "checkpoint": outcome.checkpoint,
            "run_dir": run_dir,
        }

    def _fail(
        self, context: Context, key: Mapping[str, Any], run_dir: str, error: TrainingFailed
    ) -> NoReturn:
        """Raise; close the job before that when Airflow will not try again."""
        ti = context["ti"]
        if not self._will_retry(error, ti.try_number, ti.max_tries):
            self._close(context, key, run_dir, Cause(error.cause))
        raise error

    def _close(self, context: Context, key: Mapping[str, Any], run_dir: str, cause: Cause) -> None:
        """Write that the job failed for good."""
        ti = context["ti"]
        end_job(key, run_dir, try_number=ti.try_number, max_tries=ti.max_tries, cause=cause)
        BestEffortIngest(Path(run_dir))(now=True)

    def _will_retry(self, error: TrainingFailed, try_number: int, max_tries: int) -> bool:
        if try_number > max_tries:
            return False
        if self.retry_policy is None:
            return True
        decision = self.retry_policy.evaluate(error, try_number, max_tries)
        return decision.action is not RetryAction.FAIL

    def _hold(self, context: Context) -> JobHold:
        limits = self._limits()
        hook = TorchXHook(self.torchx_conn_id)
        ti = context["ti"]
        map_index = -1 if ti.map_index is None else ti.map_index
        key = JobKey(hook.settings.deployment, ti.dag_id, ti.run_id, ti.task_id, map_index)
        opened = partial(
            open_job,
            hook.settings.run_root,
            key,
            checkpoint_root=self.checkpoint_uri or hook.checkpoint_root,
            try_number=ti.try_number,
            max_tries=ti.max_tries,
        )
        job = opened()
        if job.former is not None:
            self._await(job.former, key)
            job = opened()
        request = Request(
            component=self.component,
            component_args=[str(arg) for arg in self.component_args],
            scheduler=self.scheduler or hook.scheduler,
            cfg={**hook.cfg, **(self.cfg or {})},
            resource=self.resource,
            env={name: str(value) for name, value in (self.env or {}).items()},
            checkpoint_uri=self.checkpoint_uri,
            resume=self.resume,
            init_from=self.init_from,
            max_relaunches=self.max_relaunches,
        )
        check_checkpoints(request)
        return JobHold.of(
            job,
            request,
            try_number=ti.try_number,
            max_tries=ti.max_tries,
            limits=limits,
        )

    def _await(self, former: Former, key: JobKey) -> None:
        """Wait until the app of the generation before this one is over."""
        from airflow_ett.launch.gateway import Gateway

        def pause() -> None:
            self._pause(self.poll_interval)
            if self._killed:
                raise TrainingFailed(f"Job {key} was stopped before it began.", cause=Cause.UNKNOWN)

        former.await_end(Gateway(), key, pause)

    def _limits(self) -> Limits:
        waits = self.start_timeout
        return Limits(
            deadline_ns=self._deadline_ns(),
            start_timeout_s=None if waits is None else seconds("start_timeout", waits),
            unknown_grace_s=seconds("unknown_grace", self.unknown_grace),
        )

    def _deadline_ns(self) -> int | None:
        if self.execution_timeout is None:
            return None
        return (
            time.time_ns() + self.execution_timeout // timedelta(microseconds=1) * 1000 - _MARGIN_NS
        )

    def _check_parameters(self) -> None:
        seconds("poll_interval", self.poll_interval)
        seconds("unknown_grace", self.unknown_grace)
        if self.start_timeout is not None:
            seconds("start_timeout", self.start_timeout)
        if self.max_relaunches < 0:
            raise ConfigurationError(
                "max_relaunches", f"must be 0 or more, not {self.max_relaunches}"
            )
        validate_static(
            self.component,
            self.scheduler or DEFAULT_SCHEDULER,
            # A connection's scheduler takes options of its own, known only when the task runs.
            self.cfg if self.scheduler or not self.torchx_conn_id else None,
            self.resource,
            self.component_args,
        )
