"""Factories for the DAGs that every deployment wants."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task

log = logging.getLogger(__name__)


def rollup_dag(dag_id: str = "ett_fleet_rollup", schedule: str | timedelta = "@hourly") -> DAG:
    """Return the DAG that keeps the fleet's numbers up to date.

    It ingests what is pending below ``[ett] run_root`` and recomputes the per-day, per-DAG sums in
    ``ett_rollup``. It needs the ETT database; Airflow's own it never touches. Beside that it finds
    trainings that go on although their Airflow task is over (``[ett] reaper`` says whether they are
    reported or cancelled), and removes what is older than the options ``[ett] keep_…`` allow.
    """
    with DAG(
        dag_id,
        schedule=schedule,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["ett"],
        doc_md=(
            "Ingests pending job logs and sums them up per day and DAG; "
            "finds trainings whose Airflow task is over; removes what is old."
        ),
    ) as dag:
        _ingest() >> _roll_up() >> _prune()
        _reap()
    return dag


_RETRIED: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=30)}


@task(task_id="ingest", **_RETRIED)
def _ingest() -> int:
    """Bring every pending job log into the store; return the number of new events."""
    from airflow_ett import config
    from airflow_ett.hooks.deployment import check_database
    from airflow_ett.metric import configured
    from airflow_ett.store import ingest_root, open_store, upgrade

    settings = config.load()
    check_database(settings)
    upgrade(settings.sql_alchemy_conn)
    store = open_store(settings.sql_alchemy_conn, components=configured(settings))
    with contextlib.closing(store):
        report = ingest_root(store, settings.run_root)
    for problem in report.problems:
        log.warning("%s", problem)
    return report.new_events


@task(task_id="roll_up", **_RETRIED)
def _roll_up() -> int:
    """Recompute the sums of the days that changed; return how many."""
    from airflow_ett import config
    from airflow_ett.fleet import roll_up
    from airflow_ett.store import open_store

    settings = config.load()
    with contextlib.closing(open_store(settings.sql_alchemy_conn)) as store:
        return roll_up(store, timezone=settings.timezone)


@task(task_id="prune")
def _prune() -> dict[str, int]:
    """Remove what is older than ``[ett] keep_…`` allow; return how many of each kind."""
    from airflow_ett import config
    from airflow_ett.fleet.prune import prune
    from airflow_ett.store import open_store

    settings = config.load()
    with contextlib.closing(open_store(settings.sql_alchemy_conn)) as store:
        removed = prune(settings, store)
    for kind in removed:
        for note in kind.kept:
            log.warning("%s are kept: %s", kind.what, note)
    return {kind.what: kind.count for kind in removed}


@task(task_id="reap")
def _reap() -> list[str]:
    """Report or cancel trainings whose Airflow task is over; say what was found."""
    from airflow_ett import config
    from airflow_ett.hooks import reaper

    found = reaper.reap(config.load())
    for line in found:
        log.warning("%s", line)
    return found
