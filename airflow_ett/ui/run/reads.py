"""What the run's tab reads from the store; all raise :class:`airflow_ett.errors.StoreError`."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_ett.api.access import of_this_airflow
from airflow_ett.store import Store, queries


def jobs(store: Store, dag_id: str, run_id: str) -> Sequence[queries.JobRow]:
    """Return the run's jobs in this deployment, newest first."""
    dags = of_this_airflow([dag_id])
    return queries.jobs(store, dag_ids=dags.ids, deployment=dags.deployment, run_id=run_id)
