"""``[ett] resources``: what a name asks of each scheduler, and the accelerators it counts for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from airflow_ett.errors import ConfigurationError
from airflow_ett.fleet import roll_up
from airflow_ett.launch import resources
from airflow_ett.launch.gateway import Gateway, validate_static
from airflow_ett.launch.preparation import build_resource
from airflow_ett.launch.request import Request
from airflow_ett.launch.status import ReplicaStatus, SchedulerStatus
from airflow_ett.store import ingest_run_dir, open_store, queries, tables, upgrade
from tests.launch.contract.scripted import ROLE, DetailedScripted

S = 1_000_000_000

H100 = {
    "cpu": 96,
    "gpu": 8,
    "memMB": 900_000,
    "cfg": {
        "slurm": {"partition": "h100", "gres": "gpu:h100:8"},
        "scripted": {"queue": "h100"},
    },
}


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the option to entries."""

    def configure(**entries: Any) -> None:
        monkeypatch.setenv("AIRFLOW__ETT__RESOURCES", json.dumps(entries))

    return configure


def test_a_name_stands_for_numbers_and_for_each_schedulers_terms() -> None:
    option = {"H100.8": H100}
    numbers = {"cpu": 96, "gpu": 8, "memMB": 900_000}
    slurm = {"partition": "h100", "gres": "gpu:h100:8"}
    assert resources.resolve(option, "h100.8", "slurm") == (numbers, slurm)
    assert resources.resolve(option, "h100.8", "local_docker") == (numbers, {})


@pytest.mark.parametrize("asked", [None, "aws_p4d.24xlarge", {"gpu": 8}])
def test_what_is_no_name_of_ours_stays_as_it_is(asked: resources.Asked) -> None:
    assert resources.resolve({"h100.8": H100}, asked, "slurm") == (asked, {})


def test_a_name_of_torchx_is_hidden_by_ours() -> None:
    option = {"aws_p4d.24xlarge": {"gpu": 4}}
    assert resources.resolve(option, "aws_p4d.24xlarge", "slurm")[0] != "aws_p4d.24xlarge"


def test_what_is_left_out_is_not_asked_for() -> None:
    asked, _ = resources.resolve({"some": {"gpu": 2}}, "some", "slurm")
    assert isinstance(asked, Mapping)
    resource = build_resource(asked)
    assert (resource.cpu, resource.gpu, resource.memMB) == (-1, 2, -1)
    asked, _ = resources.resolve({"none": {}}, "none", "slurm")
    assert isinstance(asked, Mapping)
    assert build_resource(asked).gpu == 0


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"a": 8}, "a: must be an object with cpu, gpu, memMB and cfg, not 8"),
        ({"a": {"gpus": 8}}, "a: unknown gpus; known are cpu, gpu, memMB and cfg"),
        ({"a": {"gpu": "8"}}, "a: gpu must be a whole number, 0 or more, not '8'"),
        ({"a": {"gpu": -1}}, "a: gpu must be a whole number, 0 or more, not -1"),
        ({"a": {"gpu": True}}, "a: gpu must be a whole number"),
        ({"a": {"cpu": 0}}, "a: cpu must be a whole number, 1 or more, not 0"),
        ({"a": {"memMB": 1.5}}, "a: memMB must be a whole number"),
        ({"a": {"cfg": {"partition": "h100"}}}, "a: cfg must hold options by scheduler"),
        ({"a": {"cfg": []}}, "a: cfg must hold options by scheduler"),
        ({"a": {"cfg": {"slurm": {"comment": "{{ ds }}"}}}}, "a: cfg is not templated"),
        ({"a": {}, "A": {}}, "the name 'A' is given twice"),
        ({" ": {}}, "the name ' ' is empty"),
    ],
)
def test_a_bad_entry_is_named(option: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        resources.find(option, "another")
    assert raised.value.parameter == "[ett] resources"
    assert raised.value.problem.startswith(problem)


def parse(**request: Any) -> None:
    validate_static(**{"component": "train", "scheduler": "slurm", **request})


def test_a_configured_name_passes_at_parse(configured: Any) -> None:
    configured(h100=H100 | {"cfg": {"slurm": {"partition": "h100"}, "kubernetes": {"queue": "q"}}})
    parse(resource="h100", cfg={"gres": "gpu:h100:8"})
    parse(resource="{{ params.r }}")
    parse(resource="h100", scheduler="{{ params.s }}")
    parse(resource="h100", scheduler="kubernetes")


@pytest.mark.parametrize(
    ("parameter", "problem", "entry", "request_"),
    [
        ("resource", "there is no 'a100': [ett] resources has h100", {}, {"resource": "a100"}),
        ("[ett] resources", "h100: unknown gpus", {"gpus": 8}, {}),
        ("[ett] resources", "h100: unknown gpus", {"gpus": 8}, {"resource": "aws_t3.medium"}),
        (
            "[ett] resources",
            "h100, cfg of slurmm: there is no 'slurmm'; installed: ",
            {"cfg": {"slurmm": {}}},
            {},
        ),
        (
            "[ett] resources",
            "h100, cfg of slurm: Unknown run option",
            {"cfg": {"slurm": {"partitoin": "x"}}},
            {},
        ),
        (
            "[ett] resources",
            "h100, cfg of slurm: gres=gpu:4 asks for 4 GPUs a node",
            {"gpu": 8, "cfg": {"slurm": {"gres": "gpu:4"}}},
            {},
        ),
        (
            "[ett] resources",
            "h100, cfg of kubernetes: queue: ",
            {"cfg": {"kubernetes": {"queue": "Not_a_name"}}},
            {"scheduler": "kubernetes"},
        ),
        ("cfg", "gres=gpu:4 asks for 4 GPUs a node", {"gpu": 8}, {"cfg": {"gres": "gpu:4"}}),
    ],
)
def test_what_is_wrong_is_named_at_parse(
    configured: Any, parameter: str, problem: str, entry: Any, request_: dict[str, Any]
) -> None:
    configured(h100=entry)
    with pytest.raises(ConfigurationError) as raised:
        parse(**{"resource": "h100", **request_})
    assert (raised.value.parameter, raised.value.problem[: len(problem)]) == (parameter, problem)


def test_without_the_option_torchx_alone_knows_names() -> None:
    parse(resource="aws_p4d.24xlarge")
    with pytest.raises(ConfigurationError, match=r"\[ett\] resources is empty"):
        parse(resource="h100.8")


def test_what_is_known_only_at_the_run_is_refused_then_and_nothing_else_is_quoted() -> None:
    cfg = {"gres": "gpu:a100:8", "setup": "export TOKEN=hunter2"}
    gateway, component_args = Gateway(), ["--m", "x", "-j", "2x8"]
    with pytest.raises(ConfigurationError, match="for 8 GPUs a node, the component or") as raised:
        gateway.prepare("train", component_args, "slurm", cfg)
    assert raised.value.parameter == "cfg"
    assert "hunter2" not in str(raised.value)
    agreed = gateway.prepare("train", ["--gpu", "8", *component_args], "slurm", cfg)
    assert gateway.accelerators(agreed) == 16


def test_a_jobs_accelerator_hours_come_from_its_resource(bench: Any, tmp_path: Path) -> None:
    """Two nodes of eight GPUs each, held for an hour: 16 accelerator-hours."""
    scheduler = DetailedScripted(tmp_path / "scripted")
    asked, terms = resources.resolve({"h100.8": H100}, "h100.8", "scripted")
    bench.request = Request(
        "train", ["--m", "x", "-j", "2x8"], "scripted", cfg=terms, resource=asked
    )
    bench.gateway = Gateway({"scripted": lambda session, **_: scheduler})
    bench.now_ns = begun_ns = time.time_ns()
    scheduler.lives = [[SchedulerStatus("PENDING", raw="PENDING")]]
    watcher, run_dir = bench.watch(), bench.run_dir()
    bench.tick(60)
    times = {"allocated_ns": begun_ns + 60 * S, "started_ns": begun_ns + 61 * S}
    replicas = (ReplicaStatus(ROLE, 0),)
    (app,) = scheduler.submitted
    scheduler.live_on(app, SchedulerStatus("RUNNING", raw="RUNNING", replicas=replicas, **times))
    assert watcher.poll() is None
    bench.tick(3600)
    over = SchedulerStatus("SUCCEEDED", raw="DONE", ended_ns=begun_ns + 3660 * S, **times)
    scheduler.live_on(app, over)
    assert watcher.poll() is not None
    (opened,) = bench.events("job_opened")
    assert opened.data["accelerators"] == 16

    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    store = open_store(url)
    ingest_run_dir(store, run_dir.path)
    roll_up(store, timezone="UTC")
    (job,) = queries.jobs(store)
    assert job.accelerators == 16
    with store.read() as connection:
        (hours,) = connection.execute(select(tables.rollup.c.accelerator_ns)).scalars()
    store.close()
    assert hours["held"] == 16 * 3600 * S
