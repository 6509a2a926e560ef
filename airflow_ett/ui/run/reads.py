"""What the run's tab reads from the store; all raise :class:`airflow_ett.errors.StoreError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from airflow_ett.api.access import of_this_airflow
from airflow_ett.store import Store, queries, tables
from airflow_ett.store.pruned import lacks_events

_MOST = 5_000
"""Jobs of one run. Beyond them the oldest are left out: no page is made of more."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One job: its result, its phases with their components; ``pruned``: its events are gone."""

    result: Mapping[str, Any]
    phases: Sequence[queries.PhaseRow]
    pruned: bool


def jobs(
    store: Store, dag_id: str, run_id: str, task_id: str | None
) -> Sequence[Mapping[str, Any]]:
    """Return the run's jobs in this deployment without their results, newest first."""
    dags = of_this_airflow([dag_id])
    wanted = queries.Wanted(dags.ids, dags.deployment, run_id=run_id, task_id=task_id)
    return queries.job_list(store, wanted, after=None, limit=_MOST)


def job(store: Store, job: str) -> Stored | None:
    """Return all that a page shows of a job; None where it has gone meanwhile."""
    row = tables.job.c
    query = select(row.result, row.revision, row.updated_ns, row.held_ns, row.effective_ns)
    with store.read() as connection:
        found = connection.execute(query.where(row.job == job)).one_or_none()
        if found is None:
            return None
        pruned = lacks_events(connection, job)
    return Stored(queries.told(found), queries.phases(store, job), pruned)
