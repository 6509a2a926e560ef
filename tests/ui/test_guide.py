"""The guide has what advice leads to, and names only what there is."""

import ast
import html
import inspect
import re

import pytest

pytest.importorskip("airflow.api_fastapi")

from fastapi.testclient import TestClient

from airflow_ett.launch.components import train
from airflow_ett.metric.plans.advice import KEYS
from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator
from airflow_ett.retry import ETTRetryPolicy
from airflow_ett.trainer import Session
from airflow_ett.ui.app import create_app
from airflow_ett.ui.depends import get_user
from airflow_ett.ui.guide import CODE, guide_page

OTHERS = {"first-steps", "gains"}
CALLED = {
    "TorchXTrainingOperator": TorchXTrainingOperator,
    "ModelPublishOperator": ModelPublishOperator,
    "ETTRetryPolicy": ETTRetryPolicy,
    "checkpointer": Session.checkpointer,
}
AIRFLOW = {"task_id", "retries"}


def test_every_advice_has_its_section() -> None:
    sections = re.findall(r'<section id="([^"]+)"', guide_page())
    assert set(sections) == set(KEYS) | OTHERS
    assert len(sections) == len(set(sections))
    assert set(CODE) == set(KEYS)


def test_every_link_has_its_target() -> None:
    page = guide_page()
    links = re.findall(r'href="([^"]+)"', page)
    assert {f"#{key}" for key in KEYS} <= set(links)
    assert {link.removeprefix("#") for link in links} <= set(re.findall(r'id="([^"]+)"', page))
    assert not re.findall(r'src="', page)


def test_the_page_is_served() -> None:
    app = create_app()
    app.dependency_overrides[get_user] = lambda: None
    answer = TestClient(app).get("/guide")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = html.unescape(answer.text)
    assert "ett.step(number * SIZE)" in text
    assert "# +" not in text


@pytest.mark.parametrize("key", KEYS)
def test_the_code_names_what_there_is(key: str) -> None:
    for call in ast.walk(ast.parse(CODE[key])):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in CALLED:
            known = _parameters(CALLED[name]) | AIRFLOW
            free = {"model", "optimizer"} if name == "checkpointer" else set()
            assert {word.arg for word in call.keywords} <= known | free
        if isinstance(call.func, ast.Attribute) and _of(call) == "ett":
            assert hasattr(Session(), name)


def test_the_options_named_are_those_of_the_component() -> None:
    options = set(re.findall(r'"--?(\w+)"', "".join(CODE.values())))
    assert options == {"script", "j", "on_hang"}
    assert options <= set(inspect.signature(train).parameters)


def test_defaults_are_as_told() -> None:
    policy = inspect.signature(ETTRetryPolicy).parameters
    assert policy["delays"].default == (0, 4, 16, 60)
    saver = inspect.signature(Session.checkpointer).parameters
    assert (saver["every_s"].default, saver["background"].default) == ("auto", True)
    operator = inspect.signature(TorchXTrainingOperator).parameters
    assert operator["component"].default == "train"
    assert operator["max_relaunches"].default == 3


def _of(call: ast.Call) -> str:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def _parameters(called: object) -> set[str]:
    assert callable(called)
    return set(inspect.signature(called).parameters)
