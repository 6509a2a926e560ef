"""Who may see what. Airflow does not guard a plugin's routes: every route depends on this file.

The one rule, for pages and API alike: who may read the runs of a DAG sees its jobs, those of this
Airflow's deployment, for the auth manager knows no other Airflow's DAGs. Rows of other DAGs and
deployments are left out by the database, and a job of one looks like a job that does not exist.
"""

from collections.abc import Collection
from dataclasses import replace
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

from airflow_ett import config
from airflow_ett.api.errors import Denied
from airflow_ett.api.names import Name
from airflow_ett.store.scope import Dags

__all__ = ["Denied", "ReadableDag", "ReadableDags", "User", "get_user", "may_read"]


User = GetUserDep
"""A route's parameter: the signed-in user."""


def of_this_airflow(dag_ids: Collection[str] | None) -> Dags:
    """Return the Dags (None: every one) in the deployment of which this Airflow's rights speak."""
    return Dags(dag_ids, config.load().deployment)


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


def readable_dags(user: BaseUser) -> Dags:
    """Return the Dags, of those that Airflow knows, whose runs the user may read."""
    manager = get_auth_manager()
    dag_ids = manager.get_authorized_dag_ids(user=user, method="GET")
    requests = _run_requests(sorted(dag_ids))
    if manager.batch_is_authorized_dag(requests, user=user):
        return of_this_airflow(dag_ids)
    return of_this_airflow(
        {
            str(request["details"].id)
            for request in requests
            if request["details"] and manager.is_authorized_dag(**_arguments(request), user=user)
        }
    )


def _readable_dags(user: User) -> Dags:
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


def in_both(wanted: Collection[str] | None, readable: Dags) -> Dags:
    """Return the readable ones of the Dags that are asked for, all of them where none is."""
    return readable if not wanted else replace(readable, ids={*wanted} & {*(readable.ids or ())})


ReadableDag = Annotated[str, Depends(_readable_dag)]
"""A route's parameter: the Dag in its path, after the check."""

ReadableDags = Annotated[Dags, Depends(_readable_dags)]
"""A route's parameter: every Dag whose runs the user may read."""
