"""Who may see what. Airflow does not guard a plugin's routes: every route depends on this file."""

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, get_user, requires_access_dag
from fastapi import Depends, HTTPException, Request, status

__all__ = ["Denied", "ReadableDag", "get_user"]


class Denied(Exception):
    """The signed-in user may not read the runs of this Dag, whether or not it exists."""

    def __init__(self, dag_id: str, user: str) -> None:
        super().__init__(f"{user} may not read the runs of {dag_id}")
        self.dag_id = dag_id
        self.user = user


def _readable_dag(dag_id: str, request: Request, user: GetUserDep) -> str:
    """Return the path's Dag id if the user may read its runs."""
    try:
        # The id is passed on: left to itself, Airflow reads "~" as "any Dag".
        requires_access_dag("GET", DagAccessEntity.RUN, dag_id)(request, user)
    except HTTPException as error:
        if error.status_code != status.HTTP_403_FORBIDDEN:
            raise
        raise Denied(dag_id, user.get_name()) from error
    return dag_id


ReadableDag = Annotated[str, Depends(_readable_dag)]
"""A route's parameter: the Dag in its path, after the check."""
