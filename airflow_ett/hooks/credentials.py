"""A model registry's credentials, from an Airflow connection to the publisher's environment."""

from __future__ import annotations

import json

from airflow.sdk.bases.hook import BaseHook

from airflow_ett.config import CREDENTIALS_VARIABLE
from airflow_ett.errors import ConfigurationError


def registry_credentials(registry_conn_id: str | None) -> dict[str, str]:
    """Return the environment variable for a connection of any type; none without one.

    The connection's login and password are taken, or ``token`` of its extra: Airflow masks them in
    logs from here on. Raises :class:`ConfigurationError` where it has neither.
    """
    if not registry_conn_id:
        return {}
    connection = BaseHook.get_connection(registry_conn_id)
    token = connection.extra_dejson.get("token")
    found = {"login": connection.login, "password": connection.password, "token": token}
    given = {name: str(value) for name, value in found.items() if value}
    if "token" not in given and not {"login", "password"} <= set(given):
        problem = "has neither login and password nor a token (extra: {'token': ...})"
        raise ConfigurationError("registry_conn_id", f"connection {registry_conn_id!r} {problem}")
    return {CREDENTIALS_VARIABLE: json.dumps(given)}
