"""Who may see what. Airflow does not guard a plugin's routes: every route depends on this file.

The one rule, for pages and API alike: who may read the runs of a DAG sees its jobs. Rows of other
DAGs are left out by the database, and a job of one looks like a job that does not exist.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.batch_apis import IsAuthorizedDagRequest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    bearer_scheme,
    get_user,
    requires_access_dag,
)
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Path, Request, status

from airflow_ett.api.errors import Denied
from airflow_ett.api.names import Name

__all__ = ["Denied", "ReadableDag", "ReadableDags", "User", "get_user", "may_read"]


User = GetUserDep
"""A route's parameter: the signed-in user."""


def may_read(dag_id: str, request: Request, user: BaseUser) -> bool:
    """Return whether the user may read the Dag's runs, whether or not it exists."""
    try:
        # The id is passed on: left to itself, Airflow reads "~" as "any Dag".
        requires_access_dag("GET", DagAccessEntity.RUN, dag_id)(request, user)
    except HTTPException as error:
        if error.status_code != status.HTTP_403_FORBIDDEN:
            raise
        return False
    return True


def _readable_dag(
    dag_id: Annotated[Name, Path(description="Id of a DAG.")], request: Request, user: User
) -> str:
    """Return the path's Dag id if the user may read its runs."""
    if not may_read(dag_id, request, user):
        raise Denied(dag_id, user.get_name())
    return dag_id


def readable_dags(user: BaseUser) -> frozenset[str]:
    """Return the Dags, of those that Airflow knows, whose runs the user may read."""
    manager = get_auth_manager()
    dag_ids = manager.get_authorized_dag_ids(user=user, method="GET")
    requests = _run_requests(sorted(dag_ids))
    if manager.batch_is_authorized_dag(requests, user=user):
        return frozenset(dag_ids)
    return frozenset(
        str(request["details"].id)
        for request in requests
        if request["details"] and manager.is_authorized_dag(**_arguments(request), user=user)
    )


def _readable_dags(user: User) -> frozenset[str]:
    return readable_dags(user)


def _run_requests(dag_ids: list[str]) -> list[IsAuthorizedDagRequest]:
    teams: dict[str, str | None] = {}
    if conf.getboolean("core", "multi_team", fallback=False):
        teams = DagModel.get_dag_id_to_team_name_mapping(dag_ids)
    return [
        {
            "method": "GET",
            "access_entity": DagAccessEntity.RUN,
            "details": DagDetails(id=dag_id, team_name=teams.get(dag_id)),
        }
        for dag_id in dag_ids
    ]


def _arguments(request: IsAuthorizedDagRequest) -> dict[str, Any]:
    return {name: request.get(name) for name in ("method", "access_entity", "details")}


async def user_of(request: Request) -> BaseUser:
    """Return who is signed in, by header or cookie. Raises :class:`HTTPException` 401 or 403."""
    return await get_user(request, None, await bearer_scheme(request))


def in_both(wanted: Iterable[str] | None, readable: frozenset[str]) -> frozenset[str]:
    """Return the readable ones of the Dags that are asked for, all of them where none is."""
    return readable if not wanted else readable.intersection(wanted)


ReadableDag = Annotated[str, Depends(_readable_dag)]
"""A route's parameter: the Dag in its path, after the check."""

ReadableDags = Annotated[frozenset[str], Depends(_readable_dags)]
"""A route's parameter: every Dag whose runs the user may read."""
