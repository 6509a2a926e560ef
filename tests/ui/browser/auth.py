"""An auth manager under which only the admin may read Dags called ``secret…``.

Of those called ``sealed…`` nobody else may read the runs.
"""

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class GuardedAuthManager(SimpleAuthManager):
    def is_authorized_dag(
        self, *, user: Any, access_entity: Any = None, details: Any = None, **asked: Any
    ) -> bool:
        dag_id = "" if details is None else str(details.id)
        of_runs = access_entity == DagAccessEntity.RUN
        hidden = dag_id.startswith("secret") or (of_runs and dag_id.startswith("sealed"))
        if hidden and user.username != "admin":
            return False
        asked |= {"access_entity": access_entity, "details": details}
        return super().is_authorized_dag(user=user, **asked)
