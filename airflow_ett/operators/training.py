"""Launch a training through TorchX and see it through: ``TorchXTrainingOperator``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.retry_policy import RetryPolicy
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_ett import config
from airflow_ett.errors import (
    ConfigurationError,
    Fenced,
    JobLogError,
    LaunchError,
    TrainingFailed,
)
from airflow_ett.events import Cause, JobKey
from airflow_ett.hooks.ingest import BestEffortIngest, failures_per_hour
from airflow_ett.hooks.job import JobHold, check_checkpoints, try_began_ns
from airflow_ett.hooks.masking import redact, without_tokens
from airflow_ett.hooks.memory import JobMemory
from airflow_ett.hooks.torchx import DEFAULT_SCHEDULER, TorchXHook
from airflow_ett.launch import resources
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.former import Former
from airflow_ett.launch.history import fold
from airflow_ett.launch.limits import UNKNOWN_GRACE_S, Limits
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.preparation import validate_static
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.watcher import Watcher
from airflow_ett.links import LINKS, LinkBoard
from airflow_ett.operators.ending import Ending, job_key
from airflow_ett.operators.parameters import check_request, count, instance, seconds, text
from airflow_ett.operators.stopping import stop
from airflow_ett.retry import ETTRetryPolicy
from airflow_ett.triggers.training import trigger_for

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

_DAY_S = 86_400.0

_MARGIN = timedelta(seconds=2)
"""Our deadline lies this far before Airflow's own ``execution_timeout``."""

_KILL_LOOK_S = 0.2

_LOG_PAUSE_S = 5.0
"""Between two tries to reach a job's log."""

_FORMER_PAUSE_S = 5.0
"""At most so long between two looks at an app that must end before this one begins."""

_LOST_PROCESS_DELAY = timedelta(seconds=1)
"""Airflow asks no retry policy about a task process that was killed; it waits for this long."""

_RETRY_POLICY = ETTRetryPolicy()


class TorchXTrainingOperator(BaseOperator):
    """Train through TorchX; survive crashes and preemptions; resume from the newest checkpoint.

    Returns ``{job, handle, cursor, checkpoint, run_dir}``, each also as an XCom of its own, so that
    ``train.output["checkpoint"]`` is the anchor checkpoint's URI.

    :param component: a TorchX component: ``train`` (ours, with agent and metric),
        ``dist.torchrun``, ``utils.sh``, ``path/file.py:function``, ``package.module:function``.
    :param component_args: the component's arguments, as on the command line of ``torchx run``.
    :param scheduler: a TorchX scheduler; default: the connection's, else ``local_detached``.
    :param cfg: options of the scheduler, laid over those of ``resource``, and these over the
        connection's.
    :param resource: what every role asks for: a name of ``[ett] resources`` or of TorchX's, or
        ``cpu``, ``gpu`` and ``memMB`` by name.
    :param env: environment variables of every role.
    :param checkpoint_uri: where checkpoints go, below it one folder per job.
    :param resume: ``auto`` (the newest committed checkpoint of this job), ``never``, or a
        checkpoint's URI.
    :param init_from: a checkpoint's URI to take the weights from; the cursor starts at 0.
    :param poll_interval: seconds (or a timedelta) between looks at the scheduler, at most a day.
        They are faster after a change (down to a quarter) and slower in a quiet training whose end
        shows by itself (up to five).
    :param start_timeout: how long a submission may wait for its first process, in seconds or as a
        timedelta; then it is cancelled, cause ``timeout``. Default: for ever.
    :param unknown_grace: how long the scheduler may not know the app, or not answer, before the
        trainer's own word decides, or the attempt is given up as ``vanished``.
    :param deferrable: watch from the triggerer, without holding a worker. True by default, since
        trainings last for days.
    :param max_relaunches: relaunches within one try after preemption or infrastructure failure,
        counted anew whenever a committed checkpoint has advanced.
    :param torchx_conn_id: a connection of type ``torchx``.
    :param retry_policy: when to try again after what a relaunch does not mend; None for Airflow's
        own rule.
    :param retry_delay: the same where Airflow asks no policy: the task process was killed.

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
        resource: str | Mapping[str, int] | None = None,
        env: Mapping[str, str] | None = None,
        checkpoint_uri: str | None = None,
        resume: str = "auto",
        init_from: str | None = None,
        poll_interval: float | timedelta = 1.0,
        start_timeout: float | timedelta | None = None,
        unknown_grace: float | timedelta = UNKNOWN_GRACE_S,
        deferrable: bool = True,
        max_relaunches: int = 3,
        torchx_conn_id: str | None = None,
        retry_policy: RetryPolicy | None = _RETRY_POLICY,
        retry_delay: timedelta | float = _LOST_PROCESS_DELAY,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("multiple_outputs", True)
        super().__init__(retry_policy=retry_policy, retry_delay=retry_delay, **kwargs)
        self.component = component
        self.component_args = component_args
        self.scheduler = scheduler
        self.cfg = cfg
        self.resource = resource
        self.env = env
        self.checkpoint_uri = checkpoint_uri
        self.resume = resume
        self.init_from = init_from
        self.poll_interval = seconds("poll_interval", poll_interval, at_most_s=_DAY_S)
        self.start_timeout = start_timeout
        self.unknown_grace = unknown_grace
        self.deferrable = deferrable
        self.max_relaunches = max_relaunches
        self.torchx_conn_id = torchx_conn_id
        self._killed = False
        self._check_parameters()

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Claim the job, submit or adopt, and watch it here or from the triggerer."""
        with self._ending_of(context) as ending:
            try:
                return self._execute(context, ending)
            except AirflowTaskTimeout as error:
                raise TrainingFailed(redact(str(error)), cause=Cause.TIMEOUT) from None

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Go on after the trigger's end, whether it has fired or failed."""
        with self._ending_of(context):
            return super().resume_execution(next_method, next_kwargs, context)

    def execute_complete(
        self, context: Context, event: dict[str, Any], **before: Any
    ) -> dict[str, Any]:
        """Turn the trigger's outcome, and where its job lies, into the task's result.

        ``before`` is what a task was deferred with by earlier versions.
        """
        told = dict(event)
        run_dir, cause = told.pop("run_dir"), told.pop("cause")
        return self._finish(run_dir, Outcome(**told, cause=Cause(cause) if cause else None))

    def on_kill(self) -> None:
        """Only set a flag: this runs inside a signal handler; the watch loop asks what it means."""
        self._killed = True

    @contextlib.contextmanager
    def _ending_of(self, context: Context) -> Iterator[Ending]:
        ending = Ending(self.log, self.retry_policy, lambda: self._killed)
        with ending.follows(context):
            yield ending

    def _execute(self, context: Context, ending: Ending) -> dict[str, Any]:
        hold, watcher = self._begin(context, ending)
        links = LinkBoard(hold.key)
        links(watcher.places, now=True)
        if self._killed:
            stop(self.log, hold.key, watcher)
        outcome = self._look(watcher)
        if outcome is None and self.deferrable:
            self.defer(
                trigger=trigger_for(hold, self.poll_interval),
                method_name="execute_complete",  # without kwargs: airflow dags test loses them
            )
        try:
            outcome = outcome or self._watch(hold, watcher, links)
        except AirflowTaskTimeout:
            # The training was told to end 2 s ago and has not yet: the next try waits for that.
            raise TrainingFailed(
                f"Job {watcher.handle} was cancelled at its execution_timeout and is still ending.",
                cause=Cause.TIMEOUT,
            ) from None
        return self._finish(hold.run_dir, outcome)

    def _begin(self, context: Context, ending: Ending) -> tuple[JobHold, Watcher]:
        """Claim the job and begin. A log that is away is waited for: a training may be alive."""
        again = context.get("task_reschedule_count", 0) > 0
        settings, memory = config.load(), JobMemory(context)
        key = job_key(settings.deployment, context)
        until = time.monotonic() + seconds("unknown_grace", self.unknown_grace)
        while True:
            try:
                begun = memory.check(key, Root.of(settings))
                hold = self._hold(context, again=again, begun=begun)
                watcher = hold.take("again" if again else "task", self.poll_interval)
                ending.epoch, again = watcher.epoch, True
                memory.keep(hold.run_dir, hold.key["generation"])
                action = watcher.begin()
            except LaunchError as error:
                raise TrainingFailed(redact(str(error)), cause=Cause.LAUNCH) from error
            except Fenced:
                raise
            except JobLogError as error:
                if time.monotonic() >= until:
                    raise
                self.log.warning("%s Trying again.", error)
            else:
                self.log.info("Training %s: %s, log in %s", watcher.handle, action, hold.run_dir)
                return hold, watcher
            self._pause(_LOG_PAUSE_S)
            if self._killed:
                stop(self.log, asdict(key), None)

    def _watch(self, hold: JobHold, watcher: Watcher, links: LinkBoard) -> Outcome:
        ingest = BestEffortIngest(hold.run_dir)
        while True:
            self._pause(watcher.pause_s)
            if self._killed:
                stop(self.log, hold.key, watcher)
            outcome = self._look(watcher)
            links(watcher.places, now=outcome is not None)
            if outcome is not None:
                return outcome
            ingest()

    def _look(self, watcher: Watcher) -> Outcome | None:
        """Look once, and hand on what rank 0 has printed; return the outcome of a try that is over.

        A log that is away costs a warning.
        """
        try:
            outcome = watcher.poll()
            for line in watcher.read_log().splitlines():
                self.log.info("[rank 0] %s", without_tokens(line))
        except Fenced:
            raise
        except LaunchError as error:
            raise TrainingFailed(redact(str(error)), cause=Cause.LAUNCH) from error
        except JobLogError as error:
            self.log.warning("%s Watching goes on.", error)
            return None
        return outcome

    def _pause(self, seconds: float) -> None:
        """Sleep, or return as soon as the task is killed."""
        until = time.monotonic() + seconds
        while not self._killed and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _KILL_LOOK_S))

    def _finish(self, run_dir: str, outcome: Outcome) -> dict[str, Any]:
        if outcome.cause is not None:
            raise TrainingFailed(
                outcome.message,
                cause=outcome.cause,
                cursor=outcome.cursor,
                repeated=outcome.repeated,
            )
        BestEffortIngest(run_dir)(now=True)
        return {
            "job": outcome.job,
            "handle": outcome.handle,
            "cursor": outcome.cursor,
            "checkpoint": outcome.checkpoint,
            "run_dir": run_dir,
        }

    def _hold(self, context: Context, *, again: bool = False, begun: bool = True) -> JobHold:
        self._check_request(rendered=True)
        hook = TorchXHook(self.torchx_conn_id)
        ti = context["ti"]
        key = job_key(hook.settings.deployment, context)
        opened = partial(
            open_job,
            Root.of(hook.settings),
            key,
            checkpoint_root=hook.checkpoints_below(text(self.checkpoint_uri)),
            try_number=ti.try_number,
            max_tries=ti.max_tries,
            begun=begun,
        )
        job = opened()
        if job.former is not None:
            self._await(job.former, key)
            job = opened()
        scheduler = self.scheduler or hook.scheduler
        asked, terms = resources.resolve(hook.settings.resources, self.resource, scheduler)
        request = Request(
            component=self.component,
            component_args=[str(arg) for arg in self.component_args],
            scheduler=scheduler,
            cfg={**hook.cfg, **terms, **(self.cfg or {})},
            resource=asked,
            env={name: str(value) for name, value in (self.env or {}).items()},
            checkpoint_uri=text(self.checkpoint_uri),
            resume=str(self.resume),
            init_from=text(self.init_from),
            max_relaunches=self.max_relaunches,
            failures_per_hour=failures_per_hour(hook.settings, key.dag_id),
            cache_root=hook.settings.cache_root,
        )
        hook.check_deployment(request.scheduler)
        if fold(job.log.launcher_events()).live is None:  # a live training has begun already
            check_checkpoints(request)
        began_ns = try_began_ns(job.log, ti.try_number) if again else None
        return JobHold.of(
            job,
            request,
            try_number=ti.try_number,
            max_tries=ti.max_tries,
            limits=self._limits(began_ns or time.time_ns()),
        )

    def _await(self, former: Former, key: JobKey) -> None:
        """Wait until the app of the generation before this one is over."""
        from airflow_ett.launch.gateway import Gateway

        def pause() -> None:
            self._pause(min(self.poll_interval, _FORMER_PAUSE_S))
            if self._killed:
                stop(self.log, asdict(key), None)

        former.await_end(Gateway(), key, pause)

    def _limits(self, began_ns: int) -> Limits:
        """Return the limits of a try that began at an instant, which its deadline counts from."""
        waits, deadline_ns = self.start_timeout, None
        if self.execution_timeout is not None:
            length = self.execution_timeout - _MARGIN
            deadline_ns = began_ns + length // timedelta(microseconds=1) * 1000
        return Limits(
            deadline_ns=deadline_ns,
            start_timeout_s=None if waits is None else seconds("start_timeout", waits),
            unknown_grace_s=seconds("unknown_grace", self.unknown_grace),
        )

    def _check_request(self, *, rendered: bool) -> None:
        names = (*TorchXTrainingOperator.template_fields, "torchx_conn_id")
        check_request({name: getattr(self, name) for name in names}, rendered=rendered)

    def _check_parameters(self) -> None:
        self._check_request(rendered=False)
        instance("deferrable", self.deferrable, bool, "True or False")
        if self.retry_policy is not None:
            instance("retry_policy", self.retry_policy, RetryPolicy, "a RetryPolicy or None")
        seconds("unknown_grace", self.unknown_grace)
        if self.start_timeout is not None:
            seconds("start_timeout", self.start_timeout)
        if self.execution_timeout is not None and self.execution_timeout <= _MARGIN:
            problem = f"must be above {_MARGIN.total_seconds():g} s, not {self.execution_timeout}"
            raise ConfigurationError("execution_timeout", problem)
        count("max_relaunches", self.max_relaunches)
        validate_static(
            self.component,
            self.scheduler or DEFAULT_SCHEDULER,
            # A connection's scheduler takes options of its own, known only when the task runs.
            self.cfg if self.scheduler or not self.torchx_conn_id else None,
            self.resource,
            self.component_args,
        )
