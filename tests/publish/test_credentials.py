"""The registry's credentials come out of the environment, and into no text."""

from __future__ import annotations

import pytest

from airflow_ett.config import CREDENTIALS_VARIABLE as VARIABLE
from airflow_ett.errors import ConfigurationError
from airflow_ett.publish.credentials import Credentials, read_credentials, without_credentials

SECRET = "s3cret"


def test_there_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_credentials() == Credentials()


def test_what_a_connection_leaves_empty_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f'{{"login": "ann", "password": "{SECRET}", "token": null}}')
    assert read_credentials() == Credentials(login="ann", password=SECRET)


@pytest.mark.parametrize(
    "content",
    [
        SECRET,
        f'["{SECRET}"]',
        f'{{"passwort": "{SECRET}"}}',
        f'{{"token": ["{SECRET}"]}}',
        f'{{"token": "{SECRET}\\n"}}',
        f'{{"token": "{SECRET} {SECRET}"}}',
        f'{{"token": "{SECRET}ö"}}',
    ],
)
def test_what_cannot_be_used_is_not_quoted(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setenv(VARIABLE, content)
    with pytest.raises(ConfigurationError, match=VARIABLE) as caught:
        read_credentials()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_secrets_are_hidden_as_they_would_be_sent() -> None:
    credentials = Credentials(login="ann", password="two words", token=SECRET)
    text = f"Bearer {SECRET}, Basic YW5uOnR3byB3b3Jkcw==, ann:two words"
    assert credentials.redact(text) == "Bearer ***, Basic ***, ann:***"
    assert Credentials(login="ann").redact("ann: hello") == "ann: hello"
    assert SECRET not in repr(credentials)


def test_processes_of_others_code_get_none() -> None:
    assert without_credentials({VARIABLE: SECRET, "HOME": "/h"}) == {"HOME": "/h"}
