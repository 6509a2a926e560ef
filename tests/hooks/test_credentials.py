"""A registry's credentials: from a connection into the publisher's environment alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_ett.config import CREDENTIALS_VARIABLE
from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.hooks.credentials import registry_credentials
from airflow_ett.publish import credentials
from tests.operators.publishing import execute, script, task

SECRET = "hunter2-hunter2"


def connection(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", json.dumps({"conn_type": "http", **fields}))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"login": "me", "password": SECRET}, {"login": "me", "password": SECRET}),
        ({"extra": {"token": SECRET}}, {"token": SECRET}),
    ],
)
def test_login_or_token(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], expected: dict[str, str]
) -> None:
    connection(monkeypatch, **fields)
    (told,) = registry_credentials("registry").items()
    assert told == (CREDENTIALS_VARIABLE, json.dumps(expected))
    monkeypatch.setenv(*told)
    read = credentials.read_credentials()
    found = {"login": read.login, "password": read.password, "token": read.token}
    assert {name: value for name, value in found.items() if value} == expected


def test_without_a_connection_nothing_is_told() -> None:
    assert registry_credentials(None) == {}


def test_a_connection_without_any_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, login="me", host="registry")
    with pytest.raises(ConfigurationError, match="neither login and password nor a token") as wrong:
        registry_credentials("registry")
    assert wrong.value.parameter == "registry_conn_id"


@pytest.mark.parametrize(
    "fields", [{"login": "me", "password": SECRET}, {"extra": {"token": SECRET}}]
)
def test_they_reach_the_publisher_and_no_log_no_argument_no_error(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fields: dict[str, object],
) -> None:
    connection(monkeypatch, **fields)
    python = script(
        tmp_path,
        f'echo "$@" > {tmp_path}/argv; echo "${CREDENTIALS_VARIABLE}" > {tmp_path}/env',
        f'echo "refused: ${CREDENTIALS_VARIABLE}" >&2; exit 1',
    )
    operator = task(python=python, registry_conn_id="registry")
    with pytest.raises(PublishError) as raised:
        execute(operator)
    assert SECRET in (tmp_path / "env").read_text()
    assert SECRET not in (tmp_path / "argv").read_text()
    for shown in (str(raised.value), capsys.readouterr().out):
        assert "refused: " in shown
        assert SECRET not in shown
    shown = {field: getattr(operator, field) for field in operator.template_fields}
    assert SECRET not in str(shown)
