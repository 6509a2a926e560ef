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
from airflow_ett.api.summaries import day_of, days_of, rank_of, summary_of
from airflow_ett.api.tables import csv_text
from airflow_ett.metric import configured
from airflow_ett.store import periods
from airflow_ett.store.revision import REVISION
from airflow_ett.store.scope import Dags
from airflow_ett.store.sums import WEIGHTED, Sums

_CSV = {"application/json": "json", "text/csv": "csv"}
_DAY_COLUMNS = [name for name in models.FleetDay.model_fields if name != "accelerator_ms"]
_IN_CSV = {name: f"{name}_accelerator_ms" for name in WEIGHTED}
Accept = Annotated[str, Header(include_in_schema=False)]
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
    accept: Accept = "",
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
        return _csv_file(text, "dags.csv")
    ranking = models.DagRanking(period=days_of(period), total=len(rows), dags=rows[:limit])
    return models.answer(ranking)


@router.get(
    "/fleet/days",
    response_model=models.FleetDays,
    responses={200: {"content": {"text/csv": {}}}},
)
def fleet_days(
    readable: ReadableDags,
    dag_id: DagIds = None,
    days: Days = 30,
    until: LastDay = None,
    format: TableFormat = None,
    accept: Accept = "",
) -> Any:
    """Add up the jobs of all DAGs that you may read by the day on which they ended."""
    period = period_of(days, until)
    sums = periods.by_day(current_store(), period, in_both(dag_id, readable))
    found = [day_of(day, sums[day]) for day in sorted(sums)]
    if chosen(format, accept, _CSV) == "csv":
        rows = (
            day.model_dump() | {_IN_CSV[name]: ms for name, ms in day.accelerator_ms.items()}
            for day in found
        )
        return _csv_file(csv_text(rows, [*_DAY_COLUMNS, *_IN_CSV.values()]), "days.csv")
    return models.answer(models.FleetDays(period=days_of(period), days=found))


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


def _csv_file(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type="text/csv", headers=headers)


def _summary(dags: Dags, period: periods.Period) -> Response:
    store = current_store()
    running = sum(periods.running(store, dags).values())
    sums = periods.total(store, period, dags)
    return models.answer(summary_of(sums, running, period, configured(config.load())))
