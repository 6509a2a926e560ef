"""Seals Airflow's metadata database off from the processes that run users' code.

Imported by every Python process of a stack that has this folder on its path. A task's process, a
trigger runner's and a DAG parser's that open the database all the same fail, and are written down.
"""

import os
import sys
from typing import Any


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to connect; an audit hook, which survives forks and cannot be taken away."""
    if event != "sqlite3.connect" or not _runs_users_code():
        return
    home, path = os.environ.get("AIRFLOW_HOME", ""), str(arguments[0])
    if path.partition("?")[0].endswith("/airflow.db"):
        with open(f"{home}/touched", "a") as file:  # noqa: PTH123 - no imports at start
            file.write(f"{os.getpid()} {' '.join(sys.argv)}\n")
        raise PermissionError(f"{path} is sealed off from users' code")


def _runs_users_code() -> bool:
    """Whether Airflow has told this process, as it forked it, that it has no such database."""
    address = os.environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "")
    return address.startswith("airflow-db-not-allowed")


sys.addaudithook(refuse)
