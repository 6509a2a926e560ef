"""The pages as HTML. Every value is escaped by the templates; nothing here trusts a name."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from airflow_ett.errors import StoreDamaged, StoreError, StoreMismatch
from airflow_ett.metric import format as show
from airflow_ett.ui import apidocs, words
from airflow_ett.ui.charts import phase_token, spark_segments
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.data import COMPONENT_LABELS, COMPONENT_TOKENS

_STYLES = (
    *("neutrals.css", "palette.css", "base.css", "charts.css", "tables.css", "pages.css"),
    *("widths.css", "media.css"),
)
"""In the order of the cascade."""
_SCRIPTS = (
    *("host.js", "theme.js", "place.js", "figure.js", "charts.js", "forms.js", "morph.js"),
    *("live.js", "start.js"),
)
"""In the order in which they need each other."""


def render(template: str, clock: Clock | None = None, **values: Any) -> str:
    """Return a page; ``clock`` shows its times. Without one the page follows no choice: UTC."""
    shown = {"clock": clock or Clock(), "zone": clock and clock.asked}
    return _environment().get_template(template).render(shown | values)


def answer(html: str, status: int = 200) -> Response:
    """Return a page as what a route answers."""
    headers = {"Content-Security-Policy": _security_policy()}
    # A log may hold halves of characters, which no page can.
    return HTMLResponse(html.encode(errors="replace"), status, headers=headers)


def denied_page(dag_id: str, user: str) -> str:
    """403: the same whether or not the Dag exists."""
    return render("states/denied.html", dag_id=dag_id, user=user)


def signed_out_page() -> str:
    """401: the session is over."""
    return render("states/signed_out.html")


def store_page(error: StoreError, *, now_ns: int, reference: str) -> str:
    """503: the store is away, or its tables are others than ours. Names no address and no user."""
    if isinstance(error, StoreMismatch):
        return render("states/store_mismatch.html", found=error.found, needed=error.needed)
    if isinstance(error, StoreDamaged):
        return render("states/store_damaged.html", reference=reference)
    return render("states/store_away.html", now_ns=now_ns, reference=reference)


def no_page(status: int) -> str:
    """404, or another status of the client's fault: nothing can be shown at this address."""
    return render("states/no_page.html", status=status)


def failed_page(reference: str) -> str:
    """500: anything else."""
    return render("states/failed.html", reference=reference)


def api_page(document: Mapping[str, Any]) -> str:
    """The API's description, from its OpenAPI document."""
    return render(
        "api.html",
        about=document["info"]["description"],
        operations=apidocs.operations(document),
        models=apidocs.models(document),
    )


def plotly_script() -> Path:
    """The chart library's JavaScript in plotly's wheel, found without importing plotly."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("plotly is not installed: pip install 'airflow-ett[airflow]'")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


@cache
def _security_policy() -> str:
    """What a page may load: itself, its own script, plotly's and its data from this host."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'self'"
    )


@cache
def style_sheet() -> str:
    """Return the CSS of all pages."""
    return "".join(_static(name) for name in _STYLES)


@cache
def _script() -> str:
    return "".join(_static(name) for name in _SCRIPTS)


@cache
def _static(name: str) -> str:
    return files("airflow_ett.ui").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("airflow_ett.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=show.duration,
        percent=show.percent,
        change=show.change,
        cursor=show.cursor,
        segment=lambda text: quote(text, safe=""),
    )
    environment.globals.update(
        style=Markup(style_sheet()),
        script=Markup(_script()),
        plotly_version=version("plotly"),
        labels=COMPONENT_LABELS,
        tokens=COMPONENT_TOKENS,
        state_chip=words.state_chip,
        quality=words.quality,
        shares=show.shares,
        amount=_amount,
        spark=spark_segments,
        phase_token=phase_token,
    )
    return environment


def _amount(ns: int | None, accelerated: bool) -> str:
    """Accelerator-hours, or plain time where no job held an accelerator."""
    return show.accelerator_hours(ns) if accelerated else show.duration(ns)
