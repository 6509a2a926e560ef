"""Publish a trained model from a committed checkpoint, on a CPU: ``ModelPublishOperator``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_ett import config
from airflow_ett.checkpoints import holds
from airflow_ett.errors import PublishError
from airflow_ett.events import JobKey
from airflow_ett.hooks.credentials import registry_credentials
from airflow_ett.hooks.following import Due, Following, hold_newest
from airflow_ett.launch.preparation import late
from airflow_ett.operators.ending import job_key
from airflow_ett.operators.parameters import instance, seconds
from airflow_ett.operators.publishing import parameters
from airflow_ett.operators.publishing.apps import TaskApp
from airflow_ett.operators.publishing.assets import announce, model_asset
from airflow_ett.operators.publishing.child import Child
from airflow_ett.operators.publishing.state import State
from airflow_ett.operators.publishing.telling import provenance, record
from airflow_ett.operators.stopping import Watched, stop
from airflow_ett.publish.request import Request
from airflow_ett.triggers.publishing import AppTrigger, FollowTrigger

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

T = TypeVar("T")

_DAY_S = 86_400.0
_KILL_LOOK_S = 0.2

_OUTPUT = ("version", "uri", "digest")


class ModelPublishOperator(BaseOperator):
    """Write a serving snapshot of a checkpoint into a registry, checked before it is visible.

    An ordinary CPU task: the accelerators of the training are free by the time it runs. The work is
    done by a process of its own on the worker, so that Airflow needs no PyTorch, or by an app of a
    TorchX scheduler. Publishing the same checkpoint again finds it done.

    Returns ``{version, uri, digest}``, each also as an XCom of its own. By default the task updates
    the model's asset, :func:`model_asset`.

    :param checkpoint: the training task's output (its dictionary), or a checkpoint's URI. None with
        ``publish_every``.
    :param model: ``package.module:factory`` of the model.
    :param registry: a folder, the URI of one in an object store, an ``http(s)://`` address, or
        ``mlflow:``.
    :param name: the model's name in the registry; default: the task's id.
    :param version: default: from the checkpoint's cursor and digest, and the transforms.
    :param transforms: at most one of ``bfloat16``, ``float16``, ``float32`` and ``int8``, then
        perhaps ``export``.
    :param validate: ``golden`` (``package.module:function`` that returns the batch to try the
        snapshot with) and ``tolerance`` (greatest difference of a score from the trainer's).
    :param latest: ``newer`` lets the registry's latest version follow only a newer training,
        ``always`` this one whatever is there.
    :param registry_conn_id: a connection with the registry's login and password, or ``token``.
    :param scheduler: a TorchX scheduler to publish on as an app; None: on the task's worker.
    :param cfg: options of that scheduler.
    :param resource: what the app asks for: a name of ``[ett] resources`` or of TorchX's, or
        ``cpu``, ``gpu`` and ``memMB`` by name.
    :param image: the app's image: it holds airflow-ett, PyTorch and the model's code.
    :param publish_every: seconds (or a timedelta) between two publications of a running training's
        newest committed checkpoint, until its task is over.
    :param training: the task id of that training, in the same DAG run.
    :param poll_interval: seconds (or a timedelta) between looks at the app, or at the training.
    :param deferrable: wait for these in the triggerer, without holding a worker.
    :param python: the worker's interpreter that has PyTorch; default: the task's own.

    Raises :class:`ConfigurationError` at DAG parse for what can be known then.
    """

    template_fields: Sequence[str] = (
        *("checkpoint", "model", "registry", "name", "version", "transforms", "validate", "latest"),
        *("registry_conn_id", "scheduler", "cfg", "resource", "image", "training"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"cfg": "json", "validate": "json"}
    ui_color = "#60947c"

    def __init__(
        self,
        *,
        checkpoint: str | Mapping[str, Any] | None = None,
        model: str,
        registry: str,
        name: str | None = None,
        version: str | None = None,
        transforms: Sequence[str] = (),
        validate: Mapping[str, Any] | None = None,
        latest: str = parameters.NEWER,
        registry_conn_id: str | None = None,
        scheduler: str | None = None,
        cfg: Mapping[str, Any] | None = None,
        resource: str | Mapping[str, int] | None = None,
        image: str | None = None,
        publish_every: float | timedelta | None = None,
        training: str = "train",
        poll_interval: float | timedelta = 5.0,
        deferrable: bool = True,
        python: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("multiple_outputs", True)
        settings = config.load()
        for where, option in (("pool", settings.publish_pool), ("queue", settings.publish_queue)):
            if option:
                kwargs.setdefault(where, option)
        super().__init__(**kwargs)
        self.checkpoint = checkpoint
        self.model = model
        self.registry = registry
        self.name = self.task_id if name is None else name
        self.version = version
        self.transforms = transforms
        self.validate = validate or {}
        self.latest = latest
        self.registry_conn_id = registry_conn_id
        self.scheduler = scheduler
        self.cfg = cfg
        self.resource = resource
        self.image = image
        self.publish_every = publish_every
        self.training = training
        self.poll_interval = seconds("poll_interval", poll_interval, at_most_s=_DAY_S)
        self.deferrable = deferrable
        self.python = python
        self._killed = False
        self._child: Child | None = None
        instance("deferrable", deferrable, bool, "True or False")
        if publish_every is not None:
            seconds("publish_every", publish_every)
        self._check(rendered=False)
        if "outlets" not in kwargs and not late(self.name):
            self.add_outlets([model_asset(self.name)])

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the checkpoint, or what a running training commits, and hand on what it was."""
        self._check(rendered=True)
        state = State.begun(self.execution_timeout)
        if self.publish_every is None:
            source = self.checkpoint if isinstance(self.checkpoint, Mapping) else {}
            one = state.of(source or {"checkpoint": self.checkpoint}, over=True)
            state = self._publish(context, one)
        return self._follow(context, state)

    def app_over(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the app is over, or at the deadline."""
        app = TaskApp(self._key(context), self.log)
        if event["late"]:
            app.user_cancel(0.0)
            raise PublishError(f"Not published within execution_timeout, {self.execution_timeout}.")
        return self._follow(context, self._published(context, State.read(event), app.collect))

    def training_seen(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when there is something to publish, the training is over, or at the deadline."""
        if event["late"]:
            what = f"{self.training} still runs at the execution_timeout, {self.execution_timeout}"
            raise PublishError(f"{what}; what was published until then stays.")
        due = Due(event["source"], event["over"])
        return self._follow(context, self._publish_due(context, State.read(event), due))

    def on_kill(self) -> None:
        """End the publisher and set a flag; what it means is asked outside the signal handler."""
        self._killed = True
        if self._child is not None:
            self._child.end()

    def _follow(self, context: Context, state: State) -> dict[str, Any]:
        """Publish one checkpoint after another until the training is over; return the output."""
        while not state.over:
            state = self._publish_due(context, state, self._next(context, state))
        if state.published is None:
            raise PublishError(
                f"{self.training} is over and has committed no checkpoint: nothing was published"
            )
        announce(self.outlets, context["outlet_events"], state.published)
        return {name: state.published[name] for name in _OUTPUT}

    def _next(self, context: Context, state: State) -> Due:
        """Wait for what is to be published next, here or in the triggerer."""
        key, since = self._training(context), state.since
        following: dict[str, Any] = {"key": key, "since": since, "due_ns": state.due_ns}
        if self.deferrable:
            trigger = FollowTrigger(**following, **self._waiting(state))
            self.defer(trigger=trigger, method_name="training_seen")
        return self._wait(context, Following(**following).look)

    def _publish_due(self, context: Context, state: State, due: Due) -> State:
        if due.source is None:
            return state.ended()
        every_s, source = seconds("publish_every", self.publish_every or 0), due.source
        if not due.over:
            training = JobKey(**self._training(context))
            source = hold_newest(training, source, self._key(context).id)
        return self._publish(context, state.of(source, every_s=every_s, over=due.over))

    def _publish(self, context: Context, state: State) -> State:
        """Publish the state's source, here or as an app."""
        request = self._request(context, state.source)
        if self.scheduler is None:
            secrets = registry_credentials(self.registry_conn_id)
            return self._published(context, state, lambda: self._run(context, request, secrets))
        app, ti = TaskApp(self._key(context), self.log), context["ti"]
        app.begin(
            request,
            self.scheduler,
            cfg=self.cfg,
            resource=self.resource,
            image=self.image,
            tries=(ti.try_number, ti.max_tries),
        )
        if self.deferrable:
            key = asdict(self._key(context))
            trigger = AppTrigger(key=key, try_number=ti.try_number, **self._waiting(state))
            self.defer(trigger=trigger, method_name="app_over")
        return self._published(context, state, lambda: self._collect(context, app))

    def _published(
        self, context: Context, state: State, collect: Callable[[], dict[str, Any]]
    ) -> State:
        """Tell of what was published; return the state after it.

        Where the training goes on, and it has worked before, a checkpoint that cannot be published
        costs a warning: the next one may do, and the last one must.
        """
        checkpoint = str(state.source["checkpoint"])
        try:
            published = {**collect(), "checkpoint": checkpoint}
        except PublishError as error:
            if state.over or state.published is None:
                raise
            self.log.warning("%s The next checkpoint is tried.", error)
            return state
        finally:
            if not state.over:
                holds.release(checkpoint, self._key(context).id)
        if state.source.get("run_dir"):
            record(state.source, published, context)
        return state.after(published)

    def _run(
        self, context: Context, request: Request, secrets: Mapping[str, str]
    ) -> dict[str, Any]:
        self._child = Child(self.python or sys.executable, self.log)
        if self._killed:  # before there was a child to end
            self._child.end()
        try:
            return self._child.publish(request, secrets)
        except PublishError:
            if self._killed:
                stop(self.log, asdict(self._key(context)), None)
            raise

    def _collect(self, context: Context, app: TaskApp) -> dict[str, Any]:
        """Wait for an app here; end it when the task takes too long."""
        try:
            self._wait(context, app.result, app)
        except AirflowTaskTimeout:
            app.user_cancel(0.0)
            raise
        return app.collect()

    def _wait(
        self, context: Context, look: Callable[[], T | None], app: Watched | None = None
    ) -> T:
        """Look until something is found; a kill ends the task, and its app if a user wants that."""
        while (found := look()) is None:
            until = time.monotonic() + self.poll_interval
            while not self._killed and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, _KILL_LOOK_S))
            if self._killed:
                stop(self.log, asdict(self._key(context)), app)
        return found

    def _waiting(self, state: State) -> dict[str, Any]:
        """Return what all triggers of this task get."""
        return {
            "state": state.as_dict(),
            "poll_interval": self.poll_interval,
            "deadline_ns": state.deadline_ns,
        }

    def _key(self, context: Context) -> JobKey:
        return job_key(config.load().deployment, context)

    def _training(self, context: Context) -> dict[str, Any]:
        """Return the fields of the key of the training that is followed."""
        return {**asdict(self._key(context)), "task_id": self.training, "map_index": -1}

    def _request(self, context: Context, source: Mapping[str, Any]) -> Request:
        return Request(
            checkpoint=str(source["checkpoint"]),
            model=self.model,
            registry=self.registry,
            name=self.name,
            version=self.version,
            transforms=tuple(self.transforms),
            golden=self.validate.get("golden"),
            tolerance=parameters.tolerance(self.validate),
            force_latest=self.latest == parameters.ALWAYS,
            training=provenance(source, context),
        )

    def _check(self, *, rendered: bool) -> None:
        names = (*ModelPublishOperator.template_fields, "publish_every", "python")
        parameters.check({name: getattr(self, name) for name in names}, rendered=rendered)
