"""Airflow's secrets masker, as a function that launch can be handed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from airflow.sdk import log as airflow_log


class Redact(Protocol):
    """``name`` is what the value is called: a sensitive name makes it a secret."""

    def __call__(self, value: Any, name: str | None = None) -> Any:
        """Return a text, or JSON data, with ``***`` in place of secrets."""


_masked: Redact = airflow_log.redact  # type: ignore[attr-defined]  # Airflow's providers use it, too

_TOKEN = re.compile(r"ett1\.[\w.-]+", re.ASCII)
"""What a trainer may print that another process has made a token for."""


def redact(value: Any, name: str | None = None) -> Any:
    """Mask tokens for the API, and what this process has learnt from Airflow: connections,
    variables, ``mask_secret``.
    """
    return _masked(without_tokens(value), name)


def without_tokens(value: Any) -> Any:
    """Return a text, or JSON data, with ``***`` in place of tokens for the API."""
    if isinstance(value, str):
        return _TOKEN.sub("***", value)
    if isinstance(value, Mapping):
        return {key: without_tokens(item) for key, item in value.items()}
    return [without_tokens(item) for item in value] if isinstance(value, list | tuple) else value


def redactor(env: Mapping[str, str]) -> Redact:
    """Return :func:`redact` after telling it the trainer's secrets.

    These are the values of ``env`` whose names are sensitive in Airflow's sense, such as
    ``HF_TOKEN``: a trigger has not learnt of the connections and variables that its task has read.
    """
    for name, value in env.items():
        airflow_log.mask_secret(value, name)
    return redact
