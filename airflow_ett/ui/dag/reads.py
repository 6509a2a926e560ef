"""What the Dag tab reads from the store; all raise :class:`airflow_ett.errors.StoreError`."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_ett.api.access import of_this_airflow
from airflow_ett.store import Store, queries


def jobs(
    store: Store, dag_id: str, *, since_ns: int | None, limit: int | None
) -> Sequence[queries.JobRow]:
    """Return a Dag's jobs in this deployment that began at or after ``since_ns``, newest first."""
    dags = of_this_airflow([dag_id])
    return queries.jobs(
        store, dag_ids=dags.ids, deployment=dags.deployment, since_ns=since_ns, limit=limit
    )
