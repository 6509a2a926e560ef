"""Routes about jobs: the list, one job, its events."""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request
from fastapi.responses import Response

from airflow_ett import config
from airflow_ett.api import cursors, models
from airflow_ett.api.access import ReadableDags, User, in_both, may_read, of_this_airflow
from airflow_ett.api.names import Name
from airflow_ett.api.parameters import (
    Cursor,
    DagIds,
    Limit,
    Since,
    TableFormat,
    Until,
    chosen,
)
from airflow_ett.api.places import told
from airflow_ett.api.reading import current_store
from airflow_ett.api.tables import csv_text
from airflow_ett.events import JobState, encode
from airflow_ett.metric import COMPONENTS, configured
from airflow_ett.store import Store, queries

_CSV = {"application/json": "json", "text/csv": "csv"}
_LINES = {
    "application/json": "json",
    "application/jsonl": "jsonl",
    "application/x-ndjson": "jsonl",
}
_IN_CSV = {name: f"{name}_ns" for name in COMPONENTS}
_COLUMNS = [n for n in models.Job.model_fields if n not in ("nof_by_cause", "components_ns")]

JobId = Annotated[Name, Path(description="Id of a job.")]
Accept = Annotated[str, Header(include_in_schema=False)]
router = APIRouter(tags=["jobs"])


@router.get("/jobs", response_model=models.JobPage, responses={200: {"content": {"text/csv": {}}}})
def list_jobs(
    request: Request,
    readable: ReadableDags,
    dag_id: DagIds = None,
    run_id: Annotated[Name | None, Query(description="Jobs of this DAG run alone.")] = None,
    task_id: Annotated[Name | None, Query(description="Jobs of this task alone.")] = None,
    state: Annotated[
        list[JobState] | None,
        Query(max_length=10, description="Jobs in this state alone; repeatable."),
    ] = None,
    since: Since = None,
    until: Until = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    format: TableFormat = None,
    accept: Accept = "",
) -> Any:
    """List jobs, newest first. A page stays the same while jobs are added."""
    dags = in_both(dag_id, readable)
    wanted = queries.Wanted(
        dag_ids=dags.ids,
        deployment=dags.deployment,
        run_id=run_id,
        task_id=task_id,
        states=[str(one) for one in state or ()],
        since_ns=since,
        until_ns=until,
    )
    after = cursors.decode(cursor, queries.JobPlace)
    rows = queries.job_list(current_store(), wanted, after=after, limit=limit + 1)
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = cursors.encode((last["begin_ns"], last["job"]))
    found = [models.Job.of(dict(row)) for row in rows[:limit]]
    if chosen(format, accept, _CSV) == "csv":
        return _as_csv(found, request, following)
    return models.answer(models.JobPage(jobs=found, next=following))


@router.get("/jobs/{job}", response_model=models.JobDetails)
def one_job(request: Request, user: User, job: JobId) -> Any:
    """Tell all of one job. Addresses are told without passwords and tokens."""
    found = queries.job_details(_store_of(job, request, user), job)
    if found is None:
        raise _unknown(job)
    result = found["result"] | {"revision": found["revision"], "revised_ns": found["updated_ns"]}
    details = models.JobDetails(
        job=models.Job.of(found),
        submissions=found["submission"],
        attempts=_attempts(found["attempt"], found["phase"], found["result"]["attempts"]),
        checkpoints=found["checkpoint"],
        publishes=found["publish"],
        result={},
    )
    # What a log said may hold halves of characters, which JSON alone can tell.
    body = json.dumps(told(details.model_dump() | {"result": result}))
    return Response(body, media_type="application/json")


@router.get(
    "/jobs/{job}/phases",
    response_model=models.JobPhases,
    responses={200: {"content": {"text/csv": {}}}},
)
def job_phases(
    request: Request, user: User, job: JobId, format: TableFormat = None, accept: Accept = ""
) -> Any:
    """Tell where the time of each attempt of a job went, by phase."""
    components = configured(config.load())
    phases = [
        models.AttemptPhase(
            **row.attempt._asdict(),
            phase=row.phase,
            component=row.component,
            owner=components[row.component].owner,
            ns=row.ns,
        )
        for row in queries.phases(_store_of(job, request, user), job)
    ]
    if chosen(format, accept, _CSV) == "csv":
        headers = {"Content-Disposition": 'attachment; filename="phases.csv"'}
        told = (phase.model_dump() for phase in phases)
        text = csv_text(told, list(models.AttemptPhase.model_fields))
        return Response(text, media_type="text/csv", headers=headers)
    return models.answer(models.JobPhases(job=job, phases=phases))


@router.get(
    "/jobs/{job}/events",
    response_model=models.EventPage,
    responses={200: {"content": {"application/jsonl": {}}}},
)
def job_events(
    request: Request,
    user: User,
    job: JobId,
    cursor: Cursor = None,
    limit: Limit = 100,
    format: Annotated[
        Literal["json", "jsonl"] | None,
        Query(description="`json` or `jsonl`; without it the header Accept decides."),
    ] = None,
    accept: Accept = "",
) -> Any:
    """List a job's events, by writer and number: lines of the event log, or JSON lines."""
    store = _store_of(job, request, user)
    after = cursors.decode(cursor, queries.EventPlace)
    found = queries.events(store, job, after=after, limit=limit + 1)
    following = None
    if len(found) > limit:
        following = cursors.encode((found[limit - 1].writer, found[limit - 1].seq))
    lines = [encode(event) for event in found[:limit]]
    if chosen(format, accept, _LINES) == "jsonl":
        headers = _link(request, following)
        return Response(b"".join(lines), media_type="application/jsonl", headers=headers)
    page = b'{"events":[' + b",".join(line.rstrip() for line in lines) + b'],"next":'
    page += (f'"{following}"' if following else "null").encode() + b"}"
    return Response(page, media_type="application/json")


def _store_of(job: str, request: Request, user: User) -> Store:
    """Return the store if the user may read the job: else it looks as if there were none."""
    store = current_store()
    dag_id = queries.dag_of(store, job, of_this_airflow(None))
    # Of a job that nobody knows as much is asked, so that the time it takes tells nothing.
    readable = may_read(dag_id or job, request, user)
    # A job whose log does not say its DAG is nobody's yet.
    if not dag_id or not readable:
        raise _unknown(job)
    return store


def _unknown(job: str) -> HTTPException:
    return HTTPException(404, f"There is no job {job!r} that you may read.")


def _attempts(
    rows: list[dict[str, Any]], phases: list[dict[str, Any]], told: list[dict[str, Any]]
) -> list[models.Attempt]:
    """Return the attempts with their phases, and with their levers from the job's result."""
    found: dict[tuple[int, ...], list[models.PhaseTime]] = {}
    for phase in phases:
        found.setdefault(_number(phase), []).append(models.PhaseTime(**phase))
    levers = {_number(attempt): attempt["levers"] for attempt in told}
    return [
        models.Attempt(
            **row, levers=levers.get(_number(row), []), phases=found.get(_number(row), [])
        )
        for row in rows
    ]


def _number(row: dict[str, Any]) -> tuple[int, ...]:
    return row["submission"], row["scheduler_restart"], row["elastic_restart"]


def _as_csv(jobs: list[models.Job], request: Request, following: str | None) -> Response:
    rows = [
        {
            **job.model_dump(),
            **{column: job.components_ns.get(name) for name, column in _IN_CSV.items()},
        }
        for job in jobs
    ]
    # "effective_ns" stands among the job's own already, and is the same.
    columns = [*_COLUMNS, *(column for column in _IN_CSV.values() if column not in _COLUMNS)]
    headers = {"Content-Disposition": 'attachment; filename="jobs.csv"'}
    text = csv_text(rows, columns)
    return Response(text, media_type="text/csv", headers=headers | _link(request, following))


def _link(request: Request, following: str | None) -> dict[str, str]:
    if following is None:
        return {}
    query = request.url.include_query_params(cursor=following).query
    return {"Link": f'<?{query}>; rel="next"'}
