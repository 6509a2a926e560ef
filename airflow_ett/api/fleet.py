"""Routes about sums: a DAG, the fleet, its DAGs, the components."""

from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import Response

from airflow_ett import __version__, config
from airflow_ett.api import models
from airflow_ett.api.access import ReadableDag, ReadableDags, in_both, of_this_airflow
from airflow_ett.api.parameters import (
    DagIds,
    Days,
    LastDay,
    Limit,
    TableFormat,
    chosen,
    period_of,
)
from airflow_ett.api.reading import current_store
from airflow_ett.api.summaries import days_of, rank_of, summary_of
from airflow_ett.api.tables import csv_text
from airflow_ett.metric import configured
from airflow_ett.store import periods
from airflow_ett.store.revision import REVISION
from airflow_ett.store.scope import Dags
from airflow_ett.store.sums import Sums

_CSV = {"application/json": "json", "text/csv": "csv"}
router = APIRouter(tags=["sums"])


@router.get("/dags/{dag_id}/summary", response_model=models.Summary)
def dag_summary(dag_id: ReadableDag, days: Days = 30, until: LastDay = None) -> Any:
    """Add up a DAG's jobs that ended in a period."""
    return _summary(of_this_airflow([dag_id]), period_of(days, until))


@router.get("/fleet/summary", response_model=models.Summary)
def fleet_summary(
    readable: ReadableDags,
    dag_id: DagIds = None,
    days: Days = 30,
    until: LastDay = None,
) -> Any:
    """Add up the jobs of all DAGs that you may read."""
    return _summary(in_both(dag_id, readable), period_of(days, until))


@router.get(
    "/fleet/dags",
    response_model=models.DagRanking,
    responses={200: {"content": {"text/csv": {}}}},
)
def fleet_dags(
    readable: ReadableDags,
    days: Days = 30,
    until: LastDay = None,
    limit: Limit = 50,
    format: TableFormat = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Any:
    """Rank the DAGs that you may read by the accelerator time that they lost."""
    store, period = current_store(), period_of(days, until)
    components = configured(config.load())
    sums = periods.by_dag(store, period, readable)
    running = periods.running(store, readable)
    rows = [
        rank_of(*key, sums.get(key, Sums()), running.get(key, 0), components)
        for key in sums.keys() | running.keys()
    ]
    rows.sort(key=lambda row: (-row.lost_accelerator_ms, -row.lost_ns, row.dag_id))
    if chosen(format, accept, _CSV) == "csv":
        text = csv_text((r.model_dump() for r in rows[:limit]), list(models.DagRank.model_fields))
        headers = {"Content-Disposition": 'attachment; filename="dags.csv"'}
        return Response(text, media_type="text/csv", headers=headers)
    ranking = models.DagRanking(period=days_of(period), total=len(rows), dags=rows[:limit])
    return models.answer(ranking)


@router.get("/components", response_model=models.Components)
def components() -> Any:
    """List the components, their owners and their phases, as configured."""
    found = configured(config.load())
    return models.Components(
        components=[
            models.ComponentInfo(component=name, owner=part.owner, phases=list(part.phases))
            for name, part in found.items()
        ]
    )


@router.get("/health", response_model=models.Health)
def health() -> Any:
    """Say whether the database answers; 503 where it does not."""
    database = "sqlite" if current_store().is_sqlite else "postgresql"
    return models.Health(status="ok", version=__version__, revision=REVISION, database=database)


def _summary(dags: Dags, period: periods.Period) -> Response:
    store = current_store()
    running = sum(periods.running(store, dags).values())
    sums = periods.total(store, period, dags)
    return models.answer(summary_of(sums, running, period, configured(config.load())))
