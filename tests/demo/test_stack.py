"""The real Airflow that demo and system tests run on."""

from pathlib import Path
from typing import Any

import pytest

from airflow_ett.demo.processes import of_session, of_stack

pytest.importorskip("airflow")


def test_the_users_airflow_settings_do_not_leak_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_ett.demo.stack import AirflowStack

    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_HOME", "/elsewhere")
    stack = AirflowStack(tmp_path, dags=tmp_path, env={"EXTRA": "1"})
    assert "AIRFLOW__CORE__EXECUTOR" not in stack.env
    assert stack.env["AIRFLOW_HOME"] == str(tmp_path)
    assert stack.env["EXTRA"] == "1"


@pytest.mark.airflow
def test_all_components_are_healthy_and_ours(airflow_stack: Any) -> None:
    health = airflow_stack.api.health()
    assert {health[name] for name in ("scheduler", "triggerer", "dag_processor")} == {"healthy"}
    ours = of_stack(airflow_stack.home)
    for component in airflow_stack.components:
        assert of_session(airflow_stack.pid(component)) & ours


@pytest.mark.airflow
def test_a_viewer_may_look_and_not_touch(airflow_stack: Any) -> None:
    from airflow_ett.errors import DemoError

    viewer = airflow_stack.login("viewer")
    assert "dags" in viewer.get("/dags")
    with pytest.raises(DemoError, match="403"):
        viewer.request("POST", "/variables", json={"key": "k", "value": "v"})


@pytest.mark.airflow
def test_a_component_can_be_killed_and_started_again(airflow_stack: Any) -> None:
    old = airflow_stack.pid("triggerer")
    airflow_stack.stop_component("triggerer", grace_s=0)
    assert of_session(old) == set()
    airflow_stack.start_component("triggerer")
    airflow_stack.wait_healthy()
    assert airflow_stack.pid("triggerer") != old
