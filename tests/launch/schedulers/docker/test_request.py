"""What an Engine is asked for an app, checked with no Engine there."""

from __future__ import annotations

from typing import Any

import pytest
from docker.api.client import APIClient
from jsonschema import Draft202012Validator
from torchx.schedulers.docker_scheduler import DockerJob
from torchx.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    Role,
    VolumeMount,
    macros,
)

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import JobKey
from airflow_ett.launch.components import train
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.names import app_name
from airflow_ett.launch.schedulers.docker import Docker
from airflow_ett.launch.schedulers.docker.request import create
from tests.launch.schedulers.docker.engine import CREATE

NOBODY = "http://127.0.0.1:9"

KEY = JobKey("default", "a" * 80, "run", "b" * 80)


def app(**role: Any) -> AppDef:
    fields = {"image": "ghcr.io/acme/train:1", "entrypoint": "python", "args": ["t.py"], **role}
    return AppDef("ett-app", [Role("trainer", **fields)])


def rendered(made: AppDef, **cfg: Any) -> DockerJob:
    request: DockerJob = Docker("test").submit_dryrun(made, cfg).request
    return request


def bodies(job: DockerJob) -> list[dict[str, Any]]:
    """What Docker's own client would send to create the containers."""
    sent: list[dict[str, Any]] = []

    class Client(APIClient):  # type: ignore[misc]
        def create_container_from_config(self, config: Any, name: Any, platform: Any) -> Any:
            sent.append({**config, "name": name})

    client = Client(NOBODY, version="1.47")
    for one in job.containers:
        create(client, one)
    return sent


def test_a_training_of_two_nodes_is_what_the_engine_takes() -> None:
    made = train("--lr", "1", script="t.py", image="ghcr.io/acme/train:1", j="2x2", cpu=4, gpu=2,
                 memMB=8000, grace_s=120)  # fmt: skip
    made.name = app_name(KEY, 12)
    made.roles[0].env["TEXT"] = "a=b, \"c\" '${d}'\nsecond"
    first, second = bodies(rendered(made))
    for number, body in enumerate((first, second)):
        assert body.pop("name") == body["Hostname"] == f"{made.name}-trainer-{number}"
        Draft202012Validator(CREATE).validate(body)
        assert body["Labels"]["torchx.pytorch.org/app-id"] == made.name
        host = body["HostConfig"]
        assert (host["Memory"], host["ShmSize"]) == (8000 * 2**20, 8000 * 2**20)
        assert host["NanoCpus"] == 4 * 10**9
        assert host["DeviceRequests"][0]["Count"] == 2
        assert host["NetworkMode"] == "torchx"
        assert body["StopTimeout"] == 125
        assert f"TORCHX_RANK0_HOST={made.name}-trainer-0" in body["Env"]
        assert "TEXT=a=b, \"c\" '${d}'\nsecond" in body["Env"]
        assert f"--node-rank {number}" in " ".join(body["Cmd"])


def test_the_same_app_is_the_same_request_each_time() -> None:
    values = {"args": ["--app", macros.app_id], "env": {"NAME": macros.app_id}}
    first, second = rendered(app(**values)), rendered(app(**values))
    assert str(first) == str(second)
    assert first.app_id == "ett-app"
    assert first.containers[0].command == ["python", "--app", "ett-app"]
    assert first.containers[0].kwargs["environment"]["NAME"] == "ett-app"


def test_mounts_and_devices_arrive() -> None:
    mounts = [
        BindMount("/data", "/mnt/data", read_only=True),
        VolumeMount("cache", "/cache"),
        DeviceMount("/dev/infiniband", "/dev/infiniband", "rwm"),
    ]
    (body,) = bodies(rendered(app(mounts=mounts)))
    body.pop("name")
    Draft202012Validator(CREATE).validate(body)
    host = body["HostConfig"]
    assert [(m["Type"], m["Source"], m["Target"], m["ReadOnly"]) for m in host["Mounts"]] == [
        ("bind", "/data", "/mnt/data", True),
        ("volume", "cache", "/cache", False),
    ]
    assert host["Devices"][0]["PathOnHost"] == "/dev/infiniband"


@pytest.mark.parametrize(
    ("role", "problem"),
    [
        ({"image": "Acme/Train"}, "no reference of an image"),
        ({"image": ""}, "no reference of an image"),
        ({"entrypoint": ""}, "has no entrypoint"),
        ({"args": ["a\0b"]}, "NUL cannot be in an argument"),
        ({"env": {"A=B": "c"}}, "cannot be a variable"),
        ({"resource": Resource(cpu=1, gpu=0, memMB=5)}, "at least 6"),
        ({"max_retries": 3}, "relaunched as a whole"),
        ({"mounts": [BindMount("data", "/data")]}, "no absolute path"),
        ({"mounts": [BindMount("/data", "data")]}, "no absolute path to mount"),
        ({"mounts": [VolumeMount("va", "/x"), VolumeMount("vb", "/x")]}, "share the path"),
        ({"mounts": [VolumeMount("-a", "/x")]}, "a volume cannot be called"),
    ],
)
def test_what_no_engine_would_take_fails_before_anything_is_sent(
    role: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Docker("test")._validate(app(**role), "local_docker", {})


@pytest.mark.parametrize(
    ("name", "problem"), [("a role", "alone: rename the role"), ("r" * 40, "63 is the limit")]
)
def test_a_role_whose_containers_could_not_be_called_so_is_refused(name: str, problem: str) -> None:
    made = app()
    made.roles[0].name = name
    with pytest.raises(ValueError, match=problem):
        Docker("test")._validate(made, "local_docker", {})


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "pytorch/pytorch:2.13.0-cuda13",
        "registry.example.com:5000/team/train@sha256:" + 64 * "a",
        "sha256:" + 64 * "0",
        "localhost/a__b/c",
    ],
)
def test_images_are_called_as_docker_calls_them(image: str) -> None:
    assert rendered(app(image=image)).containers[0].image == image


def test_the_gateway_names_the_parameter() -> None:
    with pytest.raises(ConfigurationError, match="component: local_docker: role echo: 5 MB"):
        Gateway().prepare(
            "utils.echo", [], "local_docker", resource={"cpu": 1, "gpu": 0, "memMB": 5}
        )
    with pytest.raises(ConfigurationError, match="cfg"):
        Gateway().check("local_docker", {"no_such": 1})
