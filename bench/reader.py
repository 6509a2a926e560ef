"""The API on loopback with a stand-in for Airflow's auth manager: ``reader.py PORT``.

Everything else is real: uvicorn, the routes and their checks, the database of ``[ett]``. The header
``reader`` of a request says how many of the fleet's DAGs its user may read.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import uvicorn
from airflow.api_fastapi.core_api.security import get_user
from fastapi import FastAPI, Request
from fleet import DAGS

from airflow_ett.api.app import router


class Reader:
    """A user who may read every so many of the DAGs."""

    def __init__(self, dags: int) -> None:
        self.dag_ids = {f"dag-{number}" for number in range(0, DAGS + 1, DAGS // dags)}

    def get_name(self) -> str:
        """Return the name that a refusal tells."""
        return f"reader of {len(self.dag_ids)}"


class Manager:
    """What the routes ask of the auth manager, answered from the user."""

    def get_authorized_dag_ids(self, *, user: Reader, method: str) -> set[str]:
        """Return the DAGs that the user may read."""
        return user.dag_ids

    def batch_is_authorized_dag(self, requests: Any, *, user: Reader) -> bool:
        """Say whether all of them are the user's."""
        return all(request["details"].id in user.dag_ids for request in requests)

    def is_authorized_dag(self, *, details: Any, user: Reader, **_: Any) -> bool:
        """Say whether the DAG is the user's."""
        return details.id in user.dag_ids


def reader(request: Request) -> Reader:
    """Return the stand-in user."""
    return Reader(int(request.headers["reader"]))


def main() -> None:
    """Serve until somebody ends the process."""
    app = FastAPI()
    app.include_router(router())
    app.dependency_overrides[get_user] = reader
    manager = mock.Mock(return_value=Manager())
    with (
        mock.patch("airflow.models.dag.DagModel.get_team_name", return_value=None),
        mock.patch("airflow_ett.api.access.get_auth_manager", manager),
        mock.patch("airflow.api_fastapi.core_api.security.get_auth_manager", manager),
    ):
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
