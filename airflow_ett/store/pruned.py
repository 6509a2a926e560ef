"""Jobs whose raw events were pruned: their rows stay as they are until the events are back.

A late line must neither make a new job of them nor have them measured from what is left. Where the
run directory still holds all that was read of it, or an export is ingested, all events come back,
and the job is measured from them as any other.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from airflow_ett.store import tables

RUN_DIR_MARK = "pruned"
"""The file in a run directory that says that its logs are no longer whole."""


def lacks_events(connection: Connection, job: str) -> bool:
    """Say whether raw events of a job were pruned and are not all there again."""
    job_ = tables.job.c
    pruned = connection.scalar(select(job_.pruned_events).where(job_.job == job))
    return pruned is not None and count_events(connection, job) < pruned


def count_events(connection: Connection, job: str) -> int:
    """Return how many raw events of a job are stored."""
    query = select(func.count()).select_from(tables.event).where(tables.event.c.job == job)
    return int(connection.scalar(query) or 0)
