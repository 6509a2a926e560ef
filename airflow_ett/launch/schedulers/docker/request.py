"""What a Docker Engine is asked for an app: TorchX's containers, under names that follow from ours.

TorchX renders them, and makes a random id. Here the app's name is its id, and a container is called
after app, role and replica: the Engine has each name once, so a name is submitted once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchx.schedulers.docker_scheduler import (
    LABEL_APP_ID,
    LABEL_REPLICA_ID,
    LABEL_ROLE_NAME,
    DockerContainer,
    DockerJob,
)
from torchx.specs import AppDef, Role

from airflow_ett.launch.schedulers.local_detached import GRACE_KEY

_RANK0 = "TORCHX_RANK0_HOST"

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
_LONGEST_NAME = 63
"""A container's name is its host's, too."""

_IMAGE = re.compile(
    r"(sha256:)?[0-9a-f]{64}|([A-Za-z0-9.-]+(:\d+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,})?"
)
_OWN = ("name", "hostname", "environment", "labels", "stop_timeout")
"""What is a container's own; all else is its host's."""

_LEAST_MB = 6
"""Docker takes no smaller limit of memory."""


def container_name(app: str, role: str, replica: int | str) -> str:
    """Return what a replica's container is called."""
    return f"{app}-{role}-{replica}"


def named(job: DockerJob, app: AppDef) -> DockerJob:
    """Return TorchX's request with the app's name wherever it has written its random id."""
    rank0 = container_name(app.name, app.roles[0].name, 0)
    made = [_named(container, job.app_id, app, rank0) for container in job.containers]
    return DockerJob(app_id=app.name, containers=made)


def _named(container: DockerContainer, made_up: str, app: AppDef, rank0: str) -> DockerContainer:
    kwargs: dict[str, Any] = dict(container.kwargs)
    labels = {**kwargs["labels"], LABEL_APP_ID: app.name}
    name = container_name(app.name, labels[LABEL_ROLE_NAME], labels[LABEL_REPLICA_ID])
    environment = _replaced(kwargs["environment"], made_up, app.name)
    grace_s = max((float(role.metadata.get(GRACE_KEY, 0)) for role in app.roles), default=0.0)
    kwargs |= {
        "name": name,
        "hostname": name,
        "labels": labels,
        "environment": environment | {_RANK0: rank0},
    }
    if grace_s:
        kwargs["stop_timeout"] = round(grace_s)
    command = _replaced(container.command, made_up, app.name)
    return DockerContainer(container.image, command, kwargs)


def _replaced(value: Any, old: str, new: str) -> Any:
    return json.loads(json.dumps(value).replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))


def create(api: Any, container: DockerContainer) -> None:
    """Have the Engine of a client's ``api`` create a container. Raises ``docker.errors.APIError``.

    Its name stays its address when it gets another one.
    """
    kwargs: dict[str, Any] = dict(container.kwargs)
    own = {key: kwargs.pop(key) for key in _OWN if key in kwargs}
    network = kwargs.pop("network")
    endpoint = api.create_endpoint_config(aliases=[own["name"]])
    api.create_container(
        container.image,
        container.command,
        detach=True,
        host_config=api.create_host_config(network_mode=network, **kwargs),
        networking_config=api.create_networking_config({network: endpoint}),
        **own,
    )


def problems(job: DockerJob, app: AppDef) -> Iterator[str]:
    """Yield why an Engine would not take a request, or not do what was promised."""
    for role in app.roles:
        yield from _role_problems(role)
    for container in job.containers:
        yield from _container_problems(container)


def _role_problems(role: Role) -> Iterator[str]:
    if role.max_retries > 0:
        yield (
            f"role {role.name}: Docker would start one container again without its peers, and not "
            f"tell it that it has (max_retries is {role.max_retries}). Leave that at 0: a training "
            "is relaunched as a whole, from its newest checkpoint"
        )
    if not role.entrypoint:
        yield f"role {role.name} has no entrypoint"
    if 0 <= role.resource.memMB < _LEAST_MB:
        yield (
            f"role {role.name}: {role.resource.memMB} MB of memory (memMB); Docker takes at least "
            f"{_LEAST_MB}"
        )


def _container_problems(container: DockerContainer) -> Iterator[str]:
    kwargs: Mapping[str, Any] = container.kwargs
    name = str(kwargs["name"])
    if not _NAME.fullmatch(name):
        yield f"container {name!r} is not called by letters, digits, - _ . alone: rename the role"
    if len(name) > _LONGEST_NAME:
        yield (
            f"container {name!r} has {len(name)} characters; {_LONGEST_NAME} is the limit: shorten "
            "the role's name"
        )
    if not _IMAGE.fullmatch(container.image):
        yield f"image {container.image!r} is no reference of an image"
    if any("\0" in part for part in container.command):
        yield f"container {name}: NUL cannot be in an argument"
    for variable, value in kwargs["environment"].items():
        if not variable or "=" in variable or "\0" in f"{variable}{value}":
            yield f"container {name}: {variable!r} cannot be a variable of its environment"
    yield from _mount_problems(name, kwargs["mounts"])


def _mount_problems(name: str, mounts: Any) -> Iterator[str]:
    targets = set[str]()
    for mount in mounts:
        target, source = str(mount["Target"]), str(mount["Source"])
        if not target.startswith("/") or target.strip("/") == "":
            yield f"container {name}: {target!r} is no absolute path to mount {source!r} at"
        if target in targets:
            yield f"container {name}: two mounts share the path {target!r}"
        targets.add(target)
        if mount["Type"] == "bind" and not source.startswith("/"):
            yield f"container {name}: {source!r} is no absolute path; only such can be mounted"
        if mount["Type"] == "volume" and not _NAME.fullmatch(source):
            yield f"container {name}: a volume cannot be called {source!r}"
