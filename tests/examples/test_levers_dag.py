"""The DAG of all levers: a parameter switches each off, through the operator's ``env``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jinja2
import pytest

pytest.importorskip("airflow.sdk")

from airflow_ett.config import SWITCHES


@pytest.fixture(scope="module")
def module(repo: Path) -> Any:
    spec = importlib.util.spec_from_file_location("levers", repo / "dags" / "example_ett_levers.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def rendered(module: Any, text: str, **changes: Any) -> str:
    params = module.dag.params.dump() | changes
    return jinja2.Template(text).render(params=params)


def test_it_trains_then_publishes_the_checkpoint(module: Any) -> None:
    assert module.dag.dag_id == "example_ett_levers"
    assert module.train.downstream_task_ids == {"publish"}
    assert module.publish.model == "airflow_ett.examples.dlrm.model:build"


@pytest.mark.parametrize("lever", SWITCHES)
def test_a_parameter_switches_a_lever_off(module: Any, lever: str) -> None:
    env = {name: rendered(module, text) for name, text in module.train.env.items()}
    assert env == dict.fromkeys(SWITCHES.values(), "1")
    text = module.train.env[SWITCHES[lever]]
    assert rendered(module, text, **{lever: False}) == "0"


@pytest.mark.torch
def test_the_trainer_takes_its_arguments(module: Any) -> None:
    from airflow_ett.examples.dlrm.options import parse

    arguments = module.train.component_args
    own = [rendered(module, text) for text in arguments[arguments.index("--") + 1 :]]
    options = parse(own, {})
    assert options.samples == module.dag.params["samples"]
    assert [fault.submission for fault in options.inject] == [1, 2]
