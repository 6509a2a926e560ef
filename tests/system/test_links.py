"""A real API server's word: the links of a task in every state, and the connection's form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_ett.demo.rest import wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(300)]


def test_r20_links_are_there_in_every_state(
    airflow_stack: Any, tmp_path: Path, request: Any
) -> None:
    api, run_id = airflow_stack.api, request.node.name
    task = ("linked", run_id, "train")
    api.wait_for_dag("linked")
    api.trigger("linked", run_id, {"place": str(tmp_path)})

    def links() -> Any:
        return api.get(f"/dags/linked/dagRuns/{run_id}/taskInstances/train/links")["extra_links"]

    def of_try(number: int) -> dict[str, Any]:
        return {
            "Checkpoint": None,
            "ETT%": f"dags/linked/runs/{run_id}/tasks/train/plugin/ett-task",
            "Training job": f"https://cluster/app-{number}",
            "Training logs": f"dags/linked/runs/{run_id}/tasks/train/xcom?key_pattern=logs",
        }

    # A task is running before it has got as far as its push.
    wait_until(lambda: links() == of_try(1), "the first try shows its links", 60)
    assert api.task(*task)["state"] == "running"
    (tmp_path / "raise-1").touch()
    api.wait_for_task(*task, "up_for_retry")
    assert links() == of_try(1)
    wait_until(lambda: links() == of_try(2), "the second try shows its links", 60)
    (tmp_path / "defer").touch()
    api.wait_for_task(*task, "deferred")
    assert links() == of_try(2)
    (tmp_path / "resume").touch()
    api.wait_for_task(*task, "failed")
    assert links() == of_try(2)
    assert api.xcom(*task, "handle") == "x://ett/app-2"
    assert api.xcom(*task, "logs") == "/app-2.log"


@pytest.mark.parametrize("mode", ["held", "deferred"])
def test_r20_a_training_shows_its_links_from_submit_to_its_end(train: Any, mode: str) -> None:
    training = train(f"training_{mode}", steps=120, fail_first_at=60)
    task = (training.dag_id, training.run_id, "train")
    path = "/dags/{}/dagRuns/{}/taskInstances/{}/links".format(*task)
    shown = {
        "Checkpoint": None,
        "ETT%": "dags/{}/runs/{}/tasks/{}/plugin/ett-task".format(*task),
        "Training job": None,
        "Training logs": "dags/{}/runs/{}/tasks/{}/xcom?key_pattern=logs".format(*task),
    }

    def shows(submission: int) -> bool:
        submitted = training.events("submitted")
        return (
            len(submitted) == submission
            and training.api.get(path)["extra_links"] == shown
            and training.api.xcom(*task, "handle") == submitted[-1].data["handle"]
        )

    wait_until(lambda: shows(1), "the first submission shows its links", 60)
    wait_until(lambda: shows(2), "the next try shows its own", 90)
    assert training.end() == "success"
    assert shows(2)
    logs = Path(training.api.xcom(*task, "logs"))
    assert "training from 60" in logs.read_text()


def test_the_form_of_a_torchx_connection(airflow_stack: Any) -> None:
    answer = requests.get(
        f"{airflow_stack.url}/ui/connections/hook_meta",
        headers={"Authorization": f"Bearer {airflow_stack.api.token}"},
        timeout=30,
    )
    (form,) = [entry for entry in answer.json() if entry["connection_type"] == "torchx"]
    assert form["hook_name"] == "TorchX"
    types = {name: field["schema"]["type"] for name, field in form["extra_fields"].items()}
    assert types == {
        "scheduler": ["string", "null"],
        "cfg": ["object", "null"],
        "checkpoint_root": ["string", "null"],
    }
    shown = {n for n, field in form["standard_fields"].items() if not (field or {}).get("hidden")}
    assert shown == {"description"}


@pytest.fixture
def press_test(airflow_stack: Any) -> Callable[[str], dict[str, Any]]:
    """Airflow's test of a connection with these extra fields; it is off unless switched on."""
    switch = "AIRFLOW__CORE__TEST_CONNECTION"
    if switch not in airflow_stack.env:
        airflow_stack.env[switch] = "Enabled"
        airflow_stack.stop_component("api-server")
        airflow_stack.start_component("api-server")
        airflow_stack.wait_healthy()

    def press(extra: str) -> dict[str, Any]:
        body = {"connection_id": "gpu", "conn_type": "torchx", "extra": extra}
        answer: dict[str, Any] = airflow_stack.api.request(
            "POST", "/connections/test", json=body
        ).json()
        return answer

    return press


def test_the_test_button_of_a_torchx_connection(press_test: Any, airflow_stack: Any) -> None:
    good = press_test('{"scheduler": "local_detached", "cfg": {"grace_s": 5}}')
    assert f"run directories and checkpoints go to {airflow_stack.home}/ett/runs" in good["message"]
    assert good["status"] is True
    wrong = press_test('{"cfg": {"grace_s": "hunter2hunter2", "api_token": "hunter2hunter2"}}')
    assert "cfg: " in wrong["message"]
    assert "hunter2" not in wrong["message"]
    assert wrong["status"] is False
    unknown = press_test('{"scheduler": "slrum"}')
    assert "scheduler: there is no 'slrum'" in unknown["message"]
    assert unknown["status"] is False
