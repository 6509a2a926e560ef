"""A page of ours made by hand, and a page that frames it as Airflow does, on a loopback port."""

import json
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from airflow_ett.ui import pages
from airflow_ett.ui.clock import clock_of
from airflow_ett.ui.pulse import Pulse

TAB = "/team-a/dags/ranker/plugin/ett"
RUN_TAB = "/team-a/dags/ranker/runs/r1/plugin/ett-run"
FLEET = "/team-a/plugin/ett-fleet/team-a/ett/fleet"
VISITOR = "x-visitor"
SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"
ROWS = ("r1", "r2", "r3")
BEGIN_NS = 1_796_000_000 * 10**9

_PAGE = """
{% extends "base.html" %}
{% import "parts.html" as parts with context %}
{% block head %}<script src="../static/plotly.min.js" defer></script>{% endblock %}
{% block main %}
<form class="bar" method="get">
  <label>Period <select name="period">
    <option value="30runs">30 runs</option>
    <option value="7days"{{ " selected" if query.period == "7days" }}>7 days</option>
  </select></label>
  <label>Since <input type="date" name="since" value="{{ query.since or "" }}"></label>
  <noscript><button class="btn">Show</button></noscript>
</form>
<p class="facts"><span>State <b id="state">{{ state }}</b></span></p>
{% if "notice" in state %}
<div class="notice warn" role="status"><div>Look at this.</div></div>
{% endif %}
<section aria-labelledby="h-bars"><header><h2 id="h-bars">Bars</h2>
  <span class="seg" role="group" aria-label="Zoom">
    <button type="button" data-for="line" data-range="[0, {{ rows|length }}]"
      aria-pressed="true">Whole job</button>
    <button type="button" data-for="line" data-range="[0.5, 1.5]" data-yrange="[0, 2]"
      aria-pressed="false">Start</button>
  </span></header>
  <ul class="legend" data-for="bars">
    <li><button type="button" aria-pressed="true" data-group="wasted">Wasted</button></li>
  </ul>
  {{ parts.chart("bars", bars, 200, "Bars of the runs.") }}
  {{ parts.fetched_chart("line", "../figure?rows=" ~ rows|length, 200, "A line.") }}
</section>
<details><summary>More</summary><p>Folded</p></details>
<section aria-labelledby="h-runs"><header><h2 id="h-runs">Runs</h2></header>
<div class="scroll" role="group" tabindex="0" aria-labelledby="h-runs">
<table style="width: 3000px">
  <tbody>{% for row in rows|reverse %}
    <tr>
      <th scope="row"><a href="../../dags/ranker/runs/{{ row }}" target="_top">{{ row }}</a></th>
      <td>{{ state }}</td>
    </tr>
  {% endfor %}</tbody>
</table></div><p class="foot">All runs</p></section>
<p style="height:1500px"></p>
{% endblock %}
"""

_HOST = """<!doctype html><html class="{theme}"><head><title>Airflow</title></head><body>
<h1>Airflow</h1><iframe sandbox="{sandbox}" src="{src}" style="width:1000px;height:600px"></iframe>
<script>
  history.replaceState({{ idx: 7, key: "router" }}, "");
</script></body></html>"""


@dataclass
class Site:
    """What the server answers, and what it was asked.

    ``visitor`` names a test's page: what one of an earlier test asked last may arrive only now.
    """

    base: str = ""
    visitor: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: str = "running"
    version: str | None = "1"
    rows: tuple[str, ...] = ROWS
    status: dict[str, int] = field(default_factory=dict)
    theme: str = "light"
    asked: Counter[str] = field(default_factory=Counter)
    queries: list[str] = field(default_factory=list)

    def figure(self, *, bars: bool) -> dict[str, Any]:
        """Return bars with links, or a line that can be zoomed."""
        numbers = list(range(len(self.rows)))
        if bars:
            trace = {"type": "bar", "x": numbers, "y": [1 + n for n in numbers]}
            trace |= {"marker": {"color": "$ett-wasted"}, "legendgroup": "wasted"}
            links = [f"../../dags/ranker/runs/{row}" for row in self.rows]
            return {"data": [trace], "layout": {"meta": {"links": links}, "yaxis": {}, "xaxis": {}}}
        line = {"type": "scatter", "x": numbers, "y": numbers, "line": {"color": "$fg"}}
        layout = {"meta": {"zoom": True}, "xaxis": {"range": [0, 9]}, "yaxis": {"range": [0, 5]}}
        return {"data": [line], "layout": layout}


def app_of(site: Site) -> FastAPI:
    """Return the server of a site."""
    app = FastAPI()
    page = pages._environment().from_string(_PAGE)

    def refusal(name: str, request: Request) -> Response | None:
        if request.headers.get(VISITOR, site.visitor) != site.visitor:
            return Response("an earlier test's page", 410)
        site.asked[name] += 1
        status = site.status.get(name, 200)
        if status == 401:
            return pages.answer(pages.signed_out_page(), 401)
        return Response("no", status) if status != 200 else None

    @app.get("/team-a/ett/dag/{dag_id}")
    @app.get("/team-a/ett/run/{dag_id}")
    def ours(request: Request) -> Response:
        site.queries.append(request.url.query)
        clock = clock_of(request.cookies.get("ett_zone", ""))
        pulse = site.version and Pulse("../pulse/ranker", site.version, BEGIN_NS)
        html = page.render(
            clock=clock,
            zone=clock.asked,
            pulse=pulse,
            state=site.state,
            rows=site.rows,
            bars=site.figure(bars=True),
            query={"period": "", "since": "", **request.query_params},
        )
        return refusal("page", request) or pages.answer(html)

    @app.get("/team-a/ett/figure")
    def figure(request: Request) -> Response:
        return refusal("figure", request) or JSONResponse(site.figure(bars=False))

    @app.get("/team-a/ett/pulse/ranker")
    def pulse(request: Request) -> Response:
        answer = {"version": site.version, "live": bool(site.version), "at": "11:36:04 UTC"}
        return refusal("pulse", request) or JSONResponse(answer)

    @app.get("/team-a/ett/static/plotly.min.js")
    def plotly(request: Request) -> Response:
        return refusal("plotly", request) or Response(
            pages.plotly_script().read_text(encoding="utf-8"), media_type="text/javascript"
        )

    @app.get(TAB)
    @app.get(RUN_TAB)
    @app.get(FLEET)
    def host(request: Request) -> Response:
        src = "/team-a/ett/dag/ranker"
        if request.url.path == RUN_TAB:
            src = "/team-a/ett/run/ranker?run_id=r1"
        return HTMLResponse(_HOST.format(theme=site.theme, sandbox=SANDBOX, src=src))

    @app.get("/team-a/dags/ranker/runs/{run_id}")
    def run_page(run_id: str) -> Response:
        return HTMLResponse(f"<h1>{json.dumps(run_id)}</h1>")

    return app


class Server(uvicorn.Server):
    """A server in a thread of this process: ``with Server(app) as url``."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
        self._thread = threading.Thread(target=self.run)
        self._ready = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(30)
        return f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"

    def __exit__(self, *error: object) -> None:
        self.should_exit = True
        self._thread.join(30)
