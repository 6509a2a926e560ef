"""``/metrics``: the DAGs' numbers for a scraper, which bears a token of its own."""

import hmac
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import bearer_scheme
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from airflow_ett import config
from airflow_ett.api.access import of_this_airflow, readable_dags, user_of
from airflow_ett.api.openmetrics import OPEN, OPEN_TYPE, PLAIN_TYPE, Family, render, seconds
from airflow_ett.api.parameters import period_of
from airflow_ett.api.reading import current_store
from airflow_ett.api.summaries import ett_pct
from airflow_ett.events import USER_CAUSES, Cause
from airflow_ett.metric import COMPONENTS
from airflow_ett.store import Store, periods
from airflow_ett.store.scope import Dags
from airflow_ett.store.sums import SPENT, WEIGHTED, Sums

_MOST_DAGS = 2_000
_DAYS = 30
_CAUSES = [str(cause) for cause in Cause if cause not in USER_CAUSES]
_UNSET = (
    "There are no metrics for scrapers yet: set `[ett] metrics_token`, and `[ett] metrics_dags` to "
    "the DAGs that they may see. Or sign in."
)
router = APIRouter(tags=["metrics"])
Found = Mapping[tuple[str, str], Sums]


async def _dags(
    request: Request, bearer: Annotated[Any, Depends(bearer_scheme)]
) -> Dags | tuple[str, ...]:
    """Return whose numbers the request may see: by the scrape token its patterns, else a user's."""
    settings = config.load()
    token = settings.metrics_token
    given = bearer.credentials if bearer else ""
    if token and hmac.compare_digest(given.encode(), token.encode()):
        return settings.metrics_dags
    if not token and not given and not request.cookies:
        raise HTTPException(404, _UNSET)
    try:
        user = await user_of(request)
    except HTTPException as error:
        # Airflow answers 403 to a token that is none; here nobody was let in.
        headers = {"WWW-Authenticate": "Bearer"}
        raise HTTPException(401, "This token opens nothing here.", headers) from error
    return await run_in_threadpool(readable_dags, user)


@router.get("/metrics", response_class=Response, responses={200: {"content": {OPEN: {}}}})
def metrics(request: Request, scope: Annotated[Any, Depends(_dags)]) -> Response:
    """Tell each DAG's numbers, in OpenMetrics or in Prometheus' text format."""
    store = current_store()
    dags = of_this_airflow(_matching(store, scope)) if isinstance(scope, tuple) else scope
    open_ = OPEN in request.headers.get("accept", "").lower()
    text = render(families(store, dags), open_=open_)
    return Response(text, headers={"Content-Type": OPEN_TYPE if open_ else PLAIN_TYPE})


def _matching(store: Store, patterns: tuple[str, ...]) -> frozenset[str] | None:
    if "*" in patterns:
        return None
    known = periods.known_dags(store)
    return frozenset(
        dag_id for dag_id in known if any(fnmatchcase(dag_id, pattern) for pattern in patterns)
    )


def families(store: Store, dags: Dags) -> list[Family]:
    """Return all metrics of the DAGs; of more than 2,000 the first by name."""
    recent = period_of(_DAYS, None)
    ever = periods.Period("1970-01-02", recent.last, recent.zone)
    sums = periods.by_dag(store, ever, dags)
    running = periods.running(store, dags)
    keys = sorted(sums.keys() | running.keys())
    shown = keys[:_MOST_DAGS]
    found = {key: sums.get(key, Sums()) for key in shown}
    omitted = Family("ett_dags_omitted", "gauge", "DAGs left out beyond the first 2,000.")
    omitted.add(len(keys) - len(shown))
    jobs = Family("ett_jobs_running", "gauge", "Trainings that have not ended.")
    for deployment, dag_id in shown:
        count = running.get((deployment, dag_id), 0)
        jobs.add(count, deployment=deployment, dag_id=dag_id)
    ratio = _ratio({k: s for k, s in periods.by_dag(store, recent, dags).items() if k in found})
    return [jobs, ratio, *_counters(found), *_components(found), _failures(found), omitted]


def _ratio(found: Found) -> Family:
    help_ = f"Effective share of the wall clock of jobs that ended in the last {_DAYS} days."
    family = Family("ett_ratio", "gauge", help_, unit="ratio")
    for (deployment, dag_id), sums in found.items():
        pct = ett_pct(sums)
        if pct is not None:
            family.add(f"{pct / 100:.6f}", deployment=deployment, dag_id=dag_id)
    return family


def _counters(found: Found) -> list[Family]:
    counted = [
        Family("ett_jobs_ended", "counter", "Trainings that have ended."),
        Family("ett_attempts", "counter", "Attempts of trainings that have ended."),
    ]
    timed = [
        Family("ett_wall_seconds", "counter", "Wall clock of ended trainings.", "seconds"),
        Family("ett_held_seconds", "counter", "Time that held accelerators.", "seconds"),
        Family("ett_effective_seconds", "counter", "Time that trained on new data.", "seconds"),
    ]
    for (deployment, dag_id), sums in found.items():
        labels = {"deployment": deployment, "dag_id": dag_id}
        for family, name in zip(counted, ("jobs", "attempts"), strict=True):
            family.add(sums[name], **labels)
        for family, name in zip(timed, ("wall_ns", "held_ns", "effective_ns"), strict=True):
            family.add(seconds(sums[name]), **labels)
    return [*counted, *timed]


def _components(found: Found) -> list[Family]:
    plain = Family(
        "ett_component_seconds", "counter", "Wall clock of ended trainings by component.", "seconds"
    )
    weighted = Family(
        "ett_component_accelerator_seconds",
        "counter",
        "The same, times the accelerators of each training.",
        "seconds",
    )
    for (deployment, dag_id), sums in found.items():
        for name in COMPONENTS:
            labels = {"deployment": deployment, "dag_id": dag_id, "component": name}
            plain.add(seconds(sums[SPENT[name]]), **labels)
            weighted.add(seconds(sums[WEIGHTED[name]] * 1_000_000), **labels)
    return [plain, weighted]


def _failures(found: Found) -> Family:
    family = Family("ett_failures", "counter", "Interruptions that nobody wished for, by cause.")
    for (deployment, dag_id), sums in found.items():
        known = {cause: sums.failures[cause] for cause in _CAUSES}
        known[Cause.UNKNOWN] += sums.failures.total() - sum(known.values())
        for cause, count in known.items():
            family.add(count, deployment=deployment, dag_id=dag_id, cause=str(cause))
    return family
