"""How soon the pages show their numbers and charts: ``ui.py [LOADS]``.

In a Chromium at a real Airflow, whose database has the same 500 runs as the store. A view's times
count from the begin of its own page's navigation. What says "with Airflow" is the tab, from the
begin of Airflow's page; beside it stands Airflow's own page of the same Dag, until its grid has the
newest 10 runs, which is all it shows of them at once. The browser has all scripts in its cache, and
loads one page after the other.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
from playwright.sync_api import BrowserContext, sync_playwright
from report import Target, publish_table

# The gallery is the tests'.
sys.path.append(str(Path(__file__).parents[1]))

from airflow_ett.demo.stack import AirflowStack
from airflow_ett.events import JobKey
from airflow_ett.store import ingest_run_dir, open_store
from tests.ui.browser.stack import FLAGS, Run, airflow_stack, make_runs
from tests.ui.gallery import jobs
from tests.ui.gallery.names import DAILY, MANY
from tests.ui.gallery.seed import SECOND, Gallery

LOADS = 15
WARM = 2
GRID = 10
"""How many of the runs Airflow's grid shows in a window of this width."""
LONG_RUN = "ten_hours"
COLUMNS = ("p50, ms", "p95, ms", "KiB")
Row = tuple[float | None, float | None, float | None]

VIEWS = {
    "Dag, 500 runs": f"ett/dag/{MANY}?period=90days",
    "Dag, 30 runs of 500": f"ett/dag/{MANY}",
    "run of ten hours": f"ett/run/{DAILY}?run_id={LONG_RUN}",
    "fleet": "ett/fleet",
}
TABS = {
    "Dag, 30 runs of 500, with Airflow": f"dags/{MANY}/plugin/ett",
    "Dag, 500 runs, with Airflow": f"dags/{MANY}/plugin/ett?ett={quote('period=90days', safe='')}",
}
OBSERVER = """
(() => {
  if (!location.pathname.includes("/ett/")) return;
  const seen = (window.seen = {});
  const marks = {
    numbers: () => document.querySelector(".stats"),
    charts: () => document.body?.dataset.ready,
  };
  function look() {
    for (const [name, there] of Object.entries(marks)) {
      // What is there now is painted in this frame: its time is taken after that.
      if (!(name in seen) && there()) {
        seen[name] = null;
        setTimeout(() => { seen[name] = performance.timeOrigin + performance.now(); });
      }
    }
    if (!seen.charts) requestAnimationFrame(look);
  }
  requestAnimationFrame(look);
})();
"""
"""Notes when the numbers and the charts of one of our pages stand painted."""


def main(loads: int = LOADS) -> None:
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as home, serving(Path(home)) as stack:
        token = stack.api.token
        for name, path in VIEWS.items():
            rows[f"{name}: the server's answer"] = answers(stack, token, path, loads)
        with browsing(stack, token) as context:
            for name, path in VIEWS.items():
                numbers, charts = in_its_frame(context, f"{stack.url}/{path}", loads)
                rows[f"{name}: numbers"] = quantiles(numbers)
                rows[f"{name}: charts"] = quantiles(charts)
            for name, path in TABS.items():
                numbers, charts = from_the_top(context, f"{stack.url}/{path}", loads)
                rows[f"{name}: numbers"] = quantiles(numbers)
                rows[f"{name}: charts"] = quantiles(charts)
            grid = airflows_grid(context, f"{stack.url}/dags/{MANY}", loads)
            rows[f"Airflow's own page of the Dag, {GRID} runs"] = quantiles(grid)
    publish_table("ui", COLUMNS, rows, targets(rows))


@contextmanager
def serving(home: Path) -> Iterator[AirflowStack]:
    """Airflow with the gallery's store, and 500 runs of its own."""
    gallery = Gallery(home)
    gallery.fill()
    story = jobs.ending(
        jobs.ten_hours, JobKey("default", DAILY, LONG_RUN, "train"), gallery.now_ns - 3600 * SECOND
    )
    store = open_store(gallery.url)
    ingest_run_dir(store, story.write(gallery.root).path)
    store.close()
    stack = airflow_stack(home)
    stack.start()
    try:
        make_runs(stack, [Run(MANY, run_id) for run_id in gallery.run_ids(MANY)])
        stack.stop_component("dag-processor")
        yield stack
    finally:
        stack.stop()


@contextmanager
def browsing(stack: AirflowStack, token: str) -> Iterator[BrowserContext]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_cookies([{"name": "_token", "value": token, "url": stack.url}])
        context.add_init_script(OBSERVER)
        yield context
        browser.close()


def answers(stack: AirflowStack, token: str, path: str, loads: int) -> Row:
    """Ask for the page alone, one request after the other."""
    http = requests.Session()
    http.trust_env = False
    http.cookies.set("_token", token)
    took, size = [], 0
    for _ in range(WARM + loads):
        begin = time.perf_counter()
        answer = http.get(f"{stack.url}/{path}", timeout=30)
        took.append((time.perf_counter() - begin) * 1000)
        answer.raise_for_status()
        size = len(answer.content)
    p50, p95, _ = quantiles(took[WARM:])
    return p50, p95, size / 1024


def in_its_frame(context: BrowserContext, url: str, loads: int) -> tuple[list[float], list[float]]:
    return _loads(context, url, loads, "performance.timeOrigin")


def from_the_top(context: BrowserContext, url: str, loads: int) -> tuple[list[float], list[float]]:
    return _loads(context, url, loads, "top.performance.timeOrigin")


def _loads(
    context: BrowserContext, url: str, loads: int, origin: str
) -> tuple[list[float], list[float]]:
    """Load a page so often; return when its numbers and its charts stood, in milliseconds."""
    numbers, charts = [], []
    for _ in range(WARM + loads):
        page = context.new_page()
        page.goto(url)
        frame: Any = page.main_frame
        if "/plugin/" in frame.url:
            frame = page.wait_for_selector("iframe[src*='ett/']").content_frame()
        frame.locator("body[data-ready]").wait_for(state="attached")
        page.wait_for_timeout(100)
        seen = frame.evaluate(f"[seen.numbers - {origin}, seen.charts - {origin}]")
        numbers.append(float(seen[0]))
        charts.append(float(seen[1]))
        page.close()
    return numbers[WARM:], charts[WARM:]


def airflows_grid(context: BrowserContext, url: str, loads: int) -> list[float]:
    """Load Airflow's own page of the Dag; return when its grid had all its runs."""
    took = []
    for _ in range(WARM + loads):
        page = context.new_page()
        page.goto(url)
        page.wait_for_function(
            "([count, runs]) => document.querySelectorAll(runs).length >= count",
            arg=[GRID, "a[data-testid^=grid-][data-testid$=-train]"],
        )
        took.append(float(page.evaluate("performance.now()")))
        page.close()
    return took[WARM:]


def quantiles(values: Sequence[float]) -> Row:
    return statistics.median(values), statistics.quantiles(values, n=20)[18], None


def targets(rows: dict[str, Row]) -> list[Target]:
    return [
        Target(f"{name}: {what}, p95", rows[f"{name}: {what}"][1] or 0.0, "ms", limit)
        for name in VIEWS
        for what, limit in (("numbers", 500), ("charts", 1500))
    ]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
