"""``local_docker`` as a TorchX scheduler.

An app is one container per replica, and its id is its name. All that is known of it is kept by the
Engine, so that any process that reaches that can ask for an app, read its output, cancel or list
it.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Mapping
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound, NotFound
from requests.exceptions import RequestException
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse
from torchx.schedulers.docker_scheduler import (
    LABEL_APP_ID,
    LABEL_REPLICA_ID,
    LABEL_ROLE_NAME,
    DockerJob,
    DockerScheduler,
    Opts,
    ensure_network,
)
from torchx.specs import AppDef, AppDryRunInfo, AppState, runopts

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.describing import described
from airflow_ett.launch.schedulers.docker.options import RUN_OPTIONS
from airflow_ett.launch.schedulers.docker.output import ContainerLog
from airflow_ett.launch.schedulers.docker.request import container_name, create, named, problems
from airflow_ett.launch.schedulers.docker.states import CANCELLED, Inspected, status_of
from airflow_ett.launch.schedulers.outputs import Outputs
from airflow_ett.launch.status import SchedulerStatus

NAME = "local_docker"

_USUAL_NAME = "ett-" + 28 * "x"

_CONFLICT = 409
"""The Engine's word for a name that is taken."""

_Errors = list[Exception]
_Found = list[Inspected]
_Listed = list[ListAppResponse]

_TOLD_S = 5.0
"""So long a stop is waited for: an Engine that has it goes on by itself."""


class Docker(Outputs, DockerScheduler):  # type: ignore[misc]
    """The scheduler; apps are what the Engine of ``client`` has, by default the environment's."""

    def __init__(self, session_name: str, client: DockerClient | None = None) -> None:
        super().__init__(session_name)
        self._client = client
        self._lock = threading.Lock()

    @property
    def _docker_client(self) -> DockerClient:
        """The Engine that ``DOCKER_HOST`` names, asked for its version when first needed."""
        with self._lock:
            if self._client is None:
                self._client = DockerClient.from_env()
            return self._client

    def _run_opts(self) -> runopts:
        return RUN_OPTIONS

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> None:
        """Refuse what an Engine would not take. Nothing is sent anywhere."""
        trial = copy.deepcopy(app)
        trial.name = _USUAL_NAME
        self._rendered(trial, cfg if isinstance(cfg, Opts) else Opts.from_cfg(cfg))

    def _rendered(self, app: AppDef, cfg: Opts) -> DockerJob:
        job = named(super()._submit_dryrun(app, cfg).request, app)
        for problem in problems(job, app):
            raise ValueError(problem)
        return job

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[DockerJob, Opts]:
        return AppDryRunInfo(self._rendered(app, cfg), repr)

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob, Opts]) -> str:
        """Submit the app and return its id, which is its name.

        A submit that was broken off is gone on with. Raises :class:`LaunchError` when the app
        exists already, or Docker refuses it: then nothing of it is left. Nor is it where an answer
        was lost: what might have started unseen must not train beside the next submission.
        """
        job: DockerJob = dryrun_info.request
        self._refuse_existing(job.app_id)
        for image in sorted({container.image for container in job.containers}):
            self._pull(image)
        ensure_network(self._docker_client)
        self._refuse_existing(job.app_id)  # a pull may take long enough for another to submit it
        try:
            self._start(job)
        except (APIError, RequestException):
            with contextlib.suppress(RequestException):
                self._remove(job.app_id)
            raise
        return str(job.app_id)

    def _remove(self, app_id: str) -> None:
        for one in self._containers(app_id):
            with contextlib.suppress(APIError):
                self._docker_client.api.remove_container(one["Id"], force=True)

    def _refuse_existing(self, app_id: str) -> None:
        there = self._containers(app_id)
        if there and status_of(there).raw != "unstarted":
            raise LaunchError(f"app {app_id} exists already")

    def _pull(self, image: str) -> None:
        """Have the newest image of a name; what cannot be had must be there."""
        images = self._docker_client.images
        if image.startswith("sha256:"):
            return
        try:
            images.pull(image)
        except APIError as refused:
            try:
                images.get(image)
            except ImageNotFound:
                raise LaunchError(
                    f"image {image} is not there, and cannot be pulled: {refused}"
                ) from refused

    def _start(self, job: DockerJob) -> None:
        """Have every container, then start all: who does both at once makes one app of it.

        The Engine would start one again that has ended since.
        """
        api = self._docker_client.api
        for one in job.containers:
            try:
                create(api, one)
            except APIError as error:
                if error.status_code != _CONFLICT:
                    raise
        for one in job.containers:
            name = one.kwargs["name"]
            if api.inspect_container(name)["State"]["Status"] == "created":
                api.start(name)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the app as TorchX shows it, or None when there is none of that id."""
        detail = self.detail(app_id)
        if detail is None:
            return None
        first = detail.replicas[0]
        return described(app_id, detail, str(self.output(app_id, first.role, first.id)))

    def detail(self, app_id: str) -> SchedulerStatus | None:
        """Return all that is known of the app, or None where the Engine knows none of that id."""
        containers = self._containers(app_id)
        return status_of(containers) if containers else None

    def list(self, cfg: Mapping[str, Any] | None = None) -> _Listed:
        """Return every app of TorchX's and ours that the Engine has."""
        apps = {one["Config"]["Labels"][LABEL_APP_ID] for one in self._labelled(LABEL_APP_ID)}
        return [
            ListAppResponse(app_id=app, state=AppState[detail.state or "UNKNOWN"], name=app)
            for app in sorted(apps)
            if (detail := self.detail(app))
        ]

    def _cancel_existing(self, app_id: str) -> None:
        """Ask for the app's end: its containers get SIGTERM, and the grace of their trainers."""
        errors: _Errors = []
        stops = [
            threading.Thread(target=self._stop, args=(one, errors), daemon=True)
            for one in self._containers(app_id)
        ]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join(_TOLD_S)
        if errors:
            raise errors[0]

    def _stop(self, one: Inspected, errors: _Errors) -> None:
        """Stop a container, and note in its name that this was asked for."""
        api, name = self._docker_client.api, str(one["Name"]).strip("/")
        try:
            with contextlib.suppress(NotFound):
                if not name.endswith(CANCELLED):
                    api.rename(one["Id"], name + CANCELLED)
                api.stop(one["Id"])
        except Exception as error:
            errors.append(error)

    def app_id(self, name: str, cfg: Mapping[str, Any]) -> str:
        """Return the id of an app of this name."""
        return name

    def output(self, app_id: str, role: str, replica: int) -> ContainerLog:
        """Return a replica's output."""
        labels = (f"{LABEL_ROLE_NAME}={role}", f"{LABEL_REPLICA_ID}={replica}")
        found = self._labelled(f"{LABEL_APP_ID}={app_id}", *labels)
        name = str(found[0]["Name"]).strip("/") if found else container_name(app_id, role, replica)
        return ContainerLog(self._docker_client.api, name)

    def _containers(self, app_id: str) -> _Found:
        return self._labelled(f"{LABEL_APP_ID}={app_id}")

    def _labelled(self, *labels: str) -> _Found:
        """Return what the Engine tells of the containers with these labels, also of ended ones."""
        api = self._docker_client.api
        found: _Found = []
        for one in api.containers(all=True, filters={"label": [*labels]}):
            with contextlib.suppress(NotFound):  # it was removed just now
                found.append(api.inspect_container(one["Id"]))
        return found


def create_scheduler(session_name: str, **_: object) -> Docker:
    """TorchX's factory."""
    return Docker(session_name)
