"""Bad configuration fails at DAG parse, by the parameter's name."""

from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError
from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator
from airflow_ett.retry import ETTRetryPolicy

GOOD: dict[str, Any] = {"task_id": "train", "component_args": ["--m", "pkg.train"]}


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("scheduler", "kubernetis"),
        ("scheduler", "local_cwd"),
        ("component", "no_such_component"),
        ("component", "/nowhere/components.py:train"),
        ("cfg", {"no_such_option": 1}),
        ("poll_interval", 0),
        ("max_relaunches", -1),
        ("resource", "no.such.resource"),
    ],
)
def test_a_bad_parameter_is_named(parameter: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TorchXTrainingOperator(**{**GOOD, parameter: value})
    assert caught.value.parameter == parameter


def test_a_missing_script_is_named_at_parse() -> None:
    with pytest.raises(ConfigurationError, match=r"no script /nowhere/train\.py") as caught:
        TorchXTrainingOperator(task_id="t", component_args=["--script", "/nowhere/train.py"])
    assert caught.value.parameter == "component_args"


def test_templates_wait_for_the_run() -> None:
    TorchXTrainingOperator(
        **{**GOOD, "component": "{{ params.c }}", "scheduler": "{{ params.s }}"},
        resume="{{ params.r }}",
    )


def test_defaults() -> None:
    operator = TorchXTrainingOperator(**GOOD)
    assert operator.deferrable is True
    assert isinstance(operator.retry_policy, ETTRetryPolicy)
    assert operator.multiple_outputs is True


def test_a_model_that_is_no_factory_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ModelPublishOperator(task_id="p", checkpoint="/c", model="pkg.module", registry="/r")
    assert caught.value.parameter == "model"
