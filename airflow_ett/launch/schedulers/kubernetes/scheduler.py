"""``kubernetes`` as a TorchX scheduler.

An app is one Volcano job, a task per replica. Its id is ``<namespace>:<name>``, and the job's name
is the app's: a name is submitted once, since the API server has each name once. All that is known
of an app is kept there, so that any process that reaches the server can ask for it, read its
output, cancel or list it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDef, AppDryRunInfo, AppState, InvalidRunConfigException, runopts
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.describing import described
from airflow_ett.launch.schedulers.kubernetes import NAME, options
from airflow_ett.launch.schedulers.kubernetes.answers import read_job
from airflow_ett.launch.schedulers.kubernetes.api import answered, owner_of
from airflow_ett.launch.schedulers.kubernetes.cluster import Cluster
from airflow_ett.launch.schedulers.kubernetes.options import RUN_OPTIONS, Opts
from airflow_ett.launch.schedulers.kubernetes.output import PodLog
from airflow_ett.launch.schedulers.kubernetes.request import (
    Request,
    render,
    request_problems,
    task_name,
)
from airflow_ett.launch.schedulers.kubernetes.schema import name_problem
from airflow_ett.launch.schedulers.kubernetes.states import state_of, status_of
from airflow_ett.launch.schedulers.outputs import Outputs
from airflow_ett.launch.status import SchedulerStatus

log = logging.getLogger(__name__)


class Kubernetes(Outputs, DockerWorkspaceMixin, Scheduler[Opts]):  # type: ignore[misc]
    """The scheduler; apps are what ``cluster`` has of them."""

    def __init__(self, session_name: str, cluster: Cluster, docker_client: Any = None) -> None:
        super().__init__(NAME, session_name, docker_client=docker_client)
        self._api = cluster.api
        self._asking = cluster.asking

    def _run_opts(self) -> runopts:
        return RUN_OPTIONS

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> None:
        """Refuse what the API server would not take. Nothing is sent anywhere."""
        for problem in options.problems(cfg):
            raise InvalidRunConfigException(problem, problem.partition(":")[0], cfg)
        trial = copy.deepcopy(app)
        trial.name = _USUAL_NAME
        self._rendered(trial, cfg if isinstance(cfg, Opts) else Opts.from_cfg(cfg), {})

    def _rendered(self, app: AppDef, cfg: Opts, images: Mapping[str, tuple[str, str]]) -> Request:
        request = render(app, cfg, images)
        for problem in request_problems(request, app.roles):
            if cfg.pod and problem.startswith("pod:"):
                raise InvalidRunConfigException(problem, "pod", cfg)
            raise ValueError(problem)
        return request

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[Request, Opts]:
        images = self.dryrun_push_images(app, cfg)
        request = self._rendered(app, cfg, images)
        return AppDryRunInfo(request, lambda shown: json.dumps(shown.job, indent=2))

    def schedule(self, dryrun_info: AppDryRunInfo[Request, Opts]) -> str:
        """Submit the app and return its id.

        Raises :class:`LaunchError` when the app exists already, or Kubernetes refuses it.
        """
        request: Request = dryrun_info.request
        app_id = f"{request.namespace}:{request.app}"
        asking = self._asking(request.namespace)
        self.push_images(request.images)
        if self._api.job(request.namespace, request.app) is not None:
            asking.forget()
            raise LaunchError(f"app {app_id} exists already")
        if dryrun_info.cfg.validate_spec:
            self._api.create_job(request.namespace, request.job, dry_run=True)
        try:
            self._create(request)
        finally:
            asking.forget()
        return app_id

    def _create(self, request: Request) -> None:
        """Make the app's Secret and its job; the Secret goes when the job does.

        It is there before the job, whose pods could not start without it.
        """
        namespace, app = request.namespace, request.app
        self._api.put_secret(namespace, request.secret)
        try:
            made = self._api.create_job(namespace, request.job)
        except LaunchError as error:
            with contextlib.suppress(LaunchError):
                there = None if answered(error) in _NEVER else self._api.job(namespace, app)
                if there is not None:
                    self._api.own_secret(namespace, app, owner_of(there))
                else:  # one that is made yet, after a 5xx, must not train: its pods wait for this
                    self._api.delete_secret(namespace, app)
            if answered(error) == _NOT_FOUND:
                raise LaunchError(
                    f"{error}. Is there a namespace {namespace}, and is Volcano installed?"
                ) from error
            raise
        try:
            self._api.own_secret(namespace, app, owner_of(made))
        except LaunchError as error:
            log.warning("Secret %s in %s will outlive its app: %s", app, namespace, error)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the app as TorchX shows it, or None when there is none of that id."""
        detail = self.detail(app_id)
        if detail is None:
            return None
        first = detail.replicas[0] if detail.replicas else None
        place = str(self.output(app_id, first.role, first.id)) if first else self._api.server
        return described(app_id, detail, place)

    def detail(self, app_id: str) -> SchedulerStatus | None:
        """Return all that is known of the app, or None where the cluster knows none of that id.

        Raises :class:`LaunchError` where the API server cannot be asked.
        """
        namespace, name = _parts(app_id)
        if name_problem("", namespace) or name_problem("", name):
            return None
        seen = self._asking(namespace).app(name)
        return None if seen is None else status_of(seen, time.time_ns())

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """Return our apps in the namespace of ``cfg``, or else of the kubeconfig's context."""
        namespace = str((cfg or {}).get("namespace") or self._api.namespace)
        jobs = [read_job(said) for said in self._api.all_jobs(namespace)]
        return [
            ListAppResponse(f"{namespace}:{job.app}", AppState[state_of(job)], name=job.app)
            for job in jobs
        ]

    def reach(self, cfg: Mapping[str, Any]) -> None:
        """Ask for what is there. Raises :class:`LaunchError` where that is not answered."""
        self.list(cfg)

    def _cancel_existing(self, app_id: str) -> None:
        """Ask for the app's end: its pods get SIGTERM, and their grace; the job is kept."""
        namespace, name = _parts(app_id)
        self._api.abort(namespace, name)
        self._asking(namespace).forget()

    def app_id(self, name: str, cfg: Mapping[str, Any]) -> str:
        """Return the id of an app of this name."""
        return f"{cfg.get('namespace') or Opts.namespace}:{name}"

    def avoiding(self, cfg: Mapping[str, Any], hosts: Sequence[str]) -> Mapping[str, Any]:
        """Return run options by which an app comes to none of ``hosts``."""
        return options.avoiding(cfg, hosts)

    def output(self, app_id: str, role: str, replica: int) -> PodLog:
        """Return a replica's output."""
        namespace, name = _parts(app_id)
        task = task_name(role, replica)
        return PodLog(self._api, namespace, f"{name}-{task}-0", task)


_USUAL_NAME = "ett-" + 28 * "x"

_NEVER = frozenset({400, 401, 403, 404, 413, 422, 429})
"""HTTP's words for a request that has made nothing."""

_NOT_FOUND = 404


def _parts(app_id: str) -> tuple[str, str]:
    namespace, _, name = app_id.rpartition(":")
    return namespace, name
