"""The OpenAPI document, and requests made up from it: whatever is asked, no answer is a 5xx."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")
pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, openapi

from airflow_ett.api.openapi import document
from airflow_ett.storage.tokens import issue
from airflow_ett.ui.app import create_app
from tests.api.conftest import API_SECRET, SECRET_DAG, Manager

Client = Callable[..., Any]
_TOKENS = ("/api/v1/logs/", "/api/v1/events", "/api/v1/clock", "/api/v1/tokens/")
_JOB = "f" * 20
APP = create_app()
SCHEMA = openapi.from_dict(document(APP) | {"servers": [{"url": "http://testserver/"}]})
SCHEMA.app = APP
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


@pytest.fixture(scope="module")
def own(filled_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A copy of the database, which the made-up requests may write to."""
    copy = tmp_path_factory.mktemp("own") / "ett.db"
    for file in Path(filled_url.removeprefix("sqlite:///")).parent.glob("ett.db*"):
        shutil.copy(file, copy.with_name(file.name))
    manager = Manager({"anna": {"ranker"}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{copy}")
        patch.setenv("AIRFLOW__ETT__API_SECRET", API_SECRET)
        for module in ("airflow.api_fastapi.core_api.security", "airflow_ett.api.access"):
            patch.setattr(f"{module}.get_auth_manager", lambda: manager)
        patch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id: None)
        yield


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_no_request_is_answered_with_a_5xx(operation: Any, data: Any) -> None:
    mode = data.draw(st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
    case = data.draw(operation.as_strategy(generation_mode=mode))
    token = "anna"
    if operation.path.startswith(_TOKENS):
        token = issue(API_SECRET, _JOB, "launcher", 600)
        if "job" in (case.path_parameters or {}):
            case.path_parameters["job"] = _JOB
    answer = case.call(headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code < 500, answer.text
    assert SECRET_DAG not in answer.text


def test_the_document_tells_units_and_failures(client: Client) -> None:
    told = client("nemo").get("/api/v1/openapi.json").json()
    assert told["servers"] == [{"url": "../.."}]
    assert "/dag/{dag_id}" not in told["paths"]
    for path, methods in told["paths"].items():
        if not path.startswith((*_TOKENS, "/metrics")):
            assert {"200", "401", "403", "404", "422", "503"} <= methods["get"]["responses"].keys()
    for name in ("Job", "Summary", "Attempt", "Checkpoint"):
        for field, schema in told["components"]["schemas"][name]["properties"].items():
            if field.endswith(("_ns", "_ms", "_pct")):
                assert schema.get("description"), f"{name}.{field}"
