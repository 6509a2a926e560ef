"""What is wrong with a publishing task is said when its DAG is parsed, by the parameter's name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_ett.errors import ConfigurationError
from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator
from tests.operators.publishing import ASKED, context, execute, task

ON_SLURM = {"scheduler": "slurm"}
FOLLOWS = {"checkpoint": None, "publish_every": 600}


@pytest.mark.parametrize(
    ("parameter", "given", "problem"),
    [
        ("checkpoint", {"checkpoint": None}, "must be a training task's output"),
        ("checkpoint", {"checkpoint": ""}, "names no checkpoint"),
        ("checkpoint", {"publish_every": 600}, "newest ones are published"),
        ("version", {**FOLLOWS, "version": "v1"}, "gets its own"),
        ("version", {"version": "../up"}, "letters, digits"),
        ("model", {"model": "pkg.model"}, "pkg.module:function"),
        ("registry", {"registry": ""}, "not empty"),
        ("name", {"name": "a/b"}, "letters, digits"),
        ("name", {"name": None, "task_id": "veröffentlichen"}, "letters, digits"),
        ("transforms", {"transforms": "int8"}, "must be a list"),
        ("transforms", {"transforms": ["int4"]}, "'int4' is none"),
        ("transforms", {"transforms": ["int8", "float16"]}, "choose one"),
        ("validate", {"validate": ["golden"]}, "dictionary of golden and tolerance"),
        ("validate", {"validate": {"golden": "pkg.m"}}, "pkg.module:function"),
        ("validate", {"validate": {"tolerance": -1}}, "0 or more"),
        ("validate", {"validate": {"tolerence": 1}}, "dictionary of golden and tolerance"),
        ("latest", {"latest": "never"}, "'newer' or 'always'"),
        ("cfg", {"cfg": {}}, "name its scheduler"),
        ("resource", {"resource": {"cpu": 1}}, "name its scheduler"),
        ("image", {"image": "i"}, "name its scheduler"),
        ("scheduler", {"scheduler": "slrum"}, "there is no 'slrum'"),
        ("cfg", {**ON_SLURM, "cfg": {"partition": 7}}, "partition"),
        ("resource", {**ON_SLURM, "resource": {"gpus": 1}}, "unknown gpus"),
        ("registry_conn_id", {**ON_SLURM, "registry_conn_id": "r"}, "ETT_REGISTRY_CREDENTIALS"),
        ("python", {**ON_SLURM, "python": "/opt/python"}, "image"),
        ("publish_every", {"checkpoint": None, "publish_every": 0}, "above 0"),
        ("poll_interval", {"poll_interval": "1"}, "seconds or a timedelta"),
        ("deferrable", {"deferrable": "yes"}, "True or False"),
    ],
)
def test_what_is_wrong_is_said_by_name(parameter: str, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        task(**given)
    assert caught.value.parameter == parameter
    assert problem in caught.value.problem


def test_an_app_needs_a_run_root_that_its_nodes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__API_URL", "https://airflow.example.com")
    with pytest.raises(ConfigurationError, match=r"scheduler: .*api_url is set"):
        task(scheduler="slurm")


def test_what_nobody_knows_yet_is_left_for_the_run() -> None:
    late = "{{ params.x }}"
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        train = TorchXTrainingOperator(task_id="train", component_args=["--m", "x"])
        operator = ModelPublishOperator(
            task_id="publish",
            checkpoint=train.output,
            validate={"golden": late, "tolerance": late},
            transforms=[late],
            **dict.fromkeys(("model", "registry", "name", "version", "latest", "scheduler"), late),
        )
    assert operator.upstream_task_ids == {"train"}
    assert operator.outlets == []


def test_a_rendered_value_is_checked_before_anything_runs() -> None:
    operator = task(transforms=["{{ params.x }}"])
    operator.transforms = ["int4"]
    with pytest.raises(ConfigurationError, match="transforms: 'int4' is none"):
        execute(operator)


def test_a_rendered_tolerance_is_a_number() -> None:
    operator = task(validate={"tolerance": "{{ params.x }}"})
    operator.validate = {"tolerance": "0.25"}
    request = operator._request(context(), {"checkpoint": "/c"})
    assert (request.tolerance, request.golden) == (0.25, None)


def test_latest_always_is_asked_of_the_publisher() -> None:
    source = {"checkpoint": "/c"}
    assert task(latest="always")._request(context(), source).force_latest
    assert not task()._request(context(), source).force_latest


def test_lengths_may_be_timedeltas() -> None:
    operator = task(checkpoint=None, publish_every=timedelta(minutes=10), poll_interval=2)
    assert operator.poll_interval == 2.0


@pytest.mark.parametrize(("parameter", "option"), [("pool", "pool"), ("queue", "queue")])
def test_options_keep_publishing_off_the_workers_of_trainings(
    monkeypatch: pytest.MonkeyPatch, parameter: str, option: str
) -> None:
    usual = getattr(task(), parameter)
    monkeypatch.setenv(f"AIRFLOW__ETT__PUBLISH_{option.upper()}", "cpu")
    assert getattr(task(), parameter) == "cpu"
    assert getattr(task(**{parameter: "mine"}), parameter) == "mine"
    # What a DAG says of all its tasks is meant for its trainings, too.
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with DAG("d", schedule=None, start_date=start, default_args={parameter: "gpu"}):
        operator = ModelPublishOperator(task_id="publish", checkpoint="/c", **ASKED)
        train = TorchXTrainingOperator(task_id="train", component_args=["--m", "x"])
    assert (getattr(operator, parameter), getattr(train, parameter)) == ("cpu", "gpu")
    assert usual == "default" if parameter == "queue" else usual == "default_pool"


def test_mapped_tasks_have_no_asset_that_airflow_does_not_know() -> None:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        mapped = ModelPublishOperator.partial(task_id="publish", **ASKED).expand(
            checkpoint=["/a", "/b"]
        )
    assert mapped.unmap({"checkpoint": "/a"}).outlets == []
