"""Which jobs are not over, as far as the database knows."""

from __future__ import annotations

from sqlalchemy import select

from airflow_ett.events import JobKey
from airflow_ett.store import tables
from airflow_ett.store.engine import Store


def unfinished(store: Store, deployment: str) -> list[JobKey]:
    """Return the keys of a deployment's jobs that have not ended, the oldest first.

    Raises :class:`StoreError` when the database fails.
    """
    job = tables.job.c
    names = (job.deployment, job.dag_id, job.run_id, job.task_id, job.map_index, job.generation)
    wanted = select(*names).where(job.deployment == deployment, ~job.frozen)
    with store.read() as connection:
        rows = connection.execute(wanted.order_by(job.begin_ns, job.job)).all()
    return [JobKey(*row) for row in rows]
