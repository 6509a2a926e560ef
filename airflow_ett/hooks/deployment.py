"""Whether the parts of a deployment fit each other, said before anything is lost by it."""

from __future__ import annotations

import re

from airflow.sdk.configuration import conf

from airflow_ett.config import Settings
from airflow_ett.errors import ConfigurationError

_ONE_MACHINE = "LocalExecutor"


def check_database(settings: Settings, executor: str | None = None) -> None:
    """Raise :class:`ConfigurationError` where several machines would each fill an SQLite file.

    ``executor`` is Airflow's option, by default as it is configured here. Workers that reach the
    API need no database.
    """
    if settings.api_url or not settings.sql_alchemy_conn.startswith("sqlite"):
        return
    told = conf.get("core", "executor", fallback=_ONE_MACHINE) if executor is None else executor
    elsewhere = [name for name in re.findall(r"\w*Executor\b", told) if name != _ONE_MACHINE]
    if elsewhere:
        raise ConfigurationError(
            "[ett] sql_alchemy_conn",
            f"is an SQLite file, which one machine alone can use, and {elsewhere[0]} runs tasks on "
            "others: name a Postgres database, or set [ett] api_url",
        )
