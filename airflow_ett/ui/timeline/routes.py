"""The route of a job's timeline."""

import json
import time
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import Response

from airflow_ett import config
from airflow_ett.api.access import of_this_airflow
from airflow_ett.api.names import Name
from airflow_ett.api.places import safe_place, without_secrets
from airflow_ett.metric import JobMetric, configured
from airflow_ett.store import queries
from airflow_ett.ui.charts import Figure
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.depends import PageClock, PageStore, ReadableDag
from airflow_ett.ui.timeline import reads
from airflow_ett.ui.timeline.figure import no_figure, timeline_figure
from airflow_ett.ui.timeline.phases import components_of
from airflow_ett.ui.timeline.view import removed_text

router = APIRouter(include_in_schema=False)


@router.get("/timeline/{dag_id}")
def timeline(
    dag_id: ReadableDag, store: PageStore, clock: PageClock, job: Annotated[Name, Query()]
) -> Response:
    """Answer the figure of one of the Dag's jobs, as the store now tells of it."""
    if queries.dag_of(store, job, of_this_airflow([dag_id])) is None:
        raise HTTPException(404, f"Dag {dag_id!r} has no job {job!r}.")
    with reads.timelines(store).look(job) as metric:
        figure = _no_figure() if metric is None else _figure(metric, clock)
    # What a log told may hold halves of characters, which no encoding has.
    body = json.dumps(figure, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    return Response(body, media_type="application/json")


def _no_figure() -> Figure:
    return no_figure(removed_text(reads.keep_days()))


def _figure(metric: JobMetric, clock: Clock) -> Figure:
    booked = (
        (booking.phase, booking.component, ns)
        for attempt in metric.attempts
        for booking, ns in attempt.booked.items()
    )
    return timeline_figure(
        without_secrets(metric.as_dict(), safe_place),
        metric.lanes,
        metric.progress,
        clock,
        now_ns=time.time_ns(),
        of=components_of(booked),
        components=configured(config.load()),
    )
