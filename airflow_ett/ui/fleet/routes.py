"""The fleet page's route."""

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query
from fastapi.responses import Response

from airflow_ett import config
from airflow_ett.metric import configured
from airflow_ett.store import Store, periods
from airflow_ett.store.days import day_of
from airflow_ett.store.scope import Dags
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.depends import PageClock, PageStore, ReadableDags
from airflow_ett.ui.fleet import reads
from airflow_ett.ui.fleet.choice import PRESETS, Choice, choice_of
from airflow_ett.ui.fleet.view import day_label, fleet_view, histories_of
from airflow_ett.ui.pages import answer, render

router = APIRouter(include_in_schema=False)


@router.get("/fleet")
def fleet_page(
    dags: ReadableDags,
    store: PageStore,
    clock: PageClock,
    period: str = "",
    since: str = "",
    until: str = "",
    base: Annotated[str, Query(alias="clock")] = "",
    sort: str = "",
    rows: str = "",
) -> Response:
    settings = config.load()
    zone = ZoneInfo(settings.timezone)
    choice = choice_of(
        period=period,
        since=since,
        until=until,
        clock=base,
        sort=sort,
        rows=rows,
        today=datetime.now(zone).date(),
        zone=zone,
    )
    found = reads.fleet(store, choice.period, choice.before, dags)
    if not found.now:
        return _empty(store, dags, clock, choice, sum(found.running.values()))
    components = configured(settings)
    view = fleet_view(found, choice, components)
    ids = [row.dag_id for row in view.shown]
    return answer(
        render(
            "fleet/page.html",
            clock,
            **_controls(choice),
            view=view,
            owners={name: part.owner for name, part in components.items()},
            histories=histories_of(reads.histories(store, choice.period, dags, ids), choice),
            rolled_up=periods.has_rollup(store),
        )
    )


def _empty(store: Store, dags: Dags, clock: Clock, choice: Choice, running: int) -> Response:
    """Say that nothing ended in the period, and where the last one is that has something."""
    last_ns = periods.last_end(store, dags)
    if last_ns is None and not running:
        return answer(render("fleet/empty.html", clock))
    shown = _controls(choice) | {"running": running, "last": None}
    if last_ns is not None:
        last = day_of(last_ns, choice.period.zone)
        shown["last"] = {"label": day_label(last), "href": choice.ending(last)}
    return answer(render("fleet/empty_period.html", clock, **shown))


def _controls(choice: Choice) -> dict[str, object]:
    label = day_label(choice.period.first)
    if choice.period.last != choice.period.first:
        label += f" – {day_label(choice.period.last)}"
    return {"choice": choice, "presets": PRESETS, "period_label": label}
