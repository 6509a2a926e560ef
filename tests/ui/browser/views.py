"""Page objects: a browser page at one of our views, alone or within Airflow's own page."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tests.ui.gallery import names

Frame = Any

ALONE = {
    "dag": "ett/dag/{daily}",
    "dag of one run": "ett/dag/{one}",
    "dag of 500 runs": "ett/dag/{many}?period=90days",
    "dag of hostile names": "ett/dag/{hostile}",
    "dag with a hebrew id": "ett/dag/{hebrew_dag}",
    "dag with a long id": "ett/dag/{long_dag}",
    "dag without a training": "ett/dag/{untrained}",
    "run that lives": "ett/run/{daily}?run_id={live}",
    "run that failed": "ett/run/{daily}?run_id={broken}",
    "run that is partial": "ett/run/{daily}?run_id={partial}",
    "run without trainer events": "ett/run/{daily}?run_id={silent}",
    "run of hostile names": "ett/run/{hostile}?run_id={html}",
    "run of several jobs": "ett/run/{sweep_dag}?run_id={sweep}",
    "run without a training": "ett/run/{untrained}?run_id={first}",
    "task": "ett/run/{daily}?run_id={good}&task_id=train&map_index=%7BMAP_INDEX%7D",
    "mapped task": "ett/run/{sweep_dag}?run_id={sweep}&task_id=tune&map_index=1",
    "fleet": "ett/fleet",
    "guide": "ett/guide",
}
"""Every view as a page of its own, by what it shows: addresses below Airflow's root."""

IN_AIRFLOW = {
    "dag": "dags/{daily}/plugin/ett",
    "run": "dags/{daily}/runs/{live}/plugin/ett-run",
    "task": "dags/{daily}/runs/{live}/tasks/train/plugin/ett-task",
    "mapped task": "dags/{sweep_dag}/runs/{sweep}/tasks/tune/mapped/1/plugin/ett-task",
    "fleet": "plugin/ett-fleet",
}
"""The tabs in Airflow's own pages."""

DAGS = {
    "daily": names.DAILY,
    "one": names.ONE,
    "many": names.MANY,
    "hostile": names.NAMES,
    "hebrew_dag": names.HEBREW,
    "long_dag": names.LONG,
    "untrained": names.UNTRAINED,
    "secret": names.SECRET,
    "sealed": names.SEALED,
    "sweep_dag": names.SWEEP,
    "steady_dag": names.STEADY,
}


def address(path: str, runs: dict[str, str]) -> str:
    """Fill in the names of Dags and runs, percent-encoded."""
    return path.format_map({name: quote(value, safe="") for name, value in (DAGS | runs).items()})


class View:
    """A browser page that keeps what went wrong in it and what it asked for."""

    def __init__(self, page: Any, url: str, runs: dict[str, str]) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._runs = runs
        page.on("pageerror", lambda error: self.errors.append(f"page: {error}"))
        page.on("console", self._said)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def address(self, path: str) -> str:
        return f"{self.url}/{address(path, self._runs)}"

    def open(self, path: str) -> Frame:
        """Open a view by its address below Airflow's root; return the frame that it is in."""
        self.page.goto(self.address(path))
        return self.frame()

    def frame(self) -> Frame:
        """Return our frame once everything in it is drawn."""
        frame = self.page.main_frame
        # Airflow's address of a page in its menu ends with that page's own.
        if not frame.url.startswith(f"{self.url}/ett/"):
            frame = self.page.wait_for_selector("iframe[src*='ett/']").content_frame()
        frame.wait_for_selector("main")
        if frame.locator(".chart").count():
            frame.locator("body[data-ready]").wait_for(state="attached")
        return frame

    def set_airflows_theme(self, theme: str) -> None:
        self.page.evaluate("theme => { document.documentElement.className = theme; }", theme)

    def asked(self) -> list[str]:
        """Return what was asked of any host; `data:` and the like stay in the browser."""
        return [url for url in self.requests if url.startswith(("http", "ws"))]

    def strays(self) -> list[str]:
        """Return what was asked for outside of Airflow's base path."""
        return [url for url in self.asked() if not url.startswith(self.url + "/")]

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(f"console: {message.text} ({message.location.get('url')})")

    def _failed(self, request: Any) -> None:
        # The browser itself ends what a page that is left has asked for.
        if request.failure != "net::ERR_ABORTED":
            self.errors.append(f"failed: {request.url}: {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.errors.append(f"{response.status} {response.url}")


def colour(frame: Frame) -> str:
    return str(frame.evaluate("getComputedStyle(document.body).backgroundColor"))


def fits(frame: Frame) -> bool:
    """Return whether the page's content is no wider than its window."""
    root = "document.documentElement"
    return bool(frame.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"))


def violations(frame: Frame, axe: str) -> list[str]:
    """Return axe's serious and critical findings: rule, element and why."""
    frame.evaluate(axe)
    found = frame.evaluate("axe.run({ resultTypes: ['violations'], iframes: false })")
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']}: {node['any'] or node['all']}"[:400]
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def markup(frame: Frame) -> int:
    """Return how many elements a hostile name has become."""
    made = frame.locator("img").count() + frame.locator("b", has_text=re.compile("^x$")).count()
    return int(made) + (frame.title() == "gone")


def once(condition: Callable[[], Any], page: Any, tries: int = 100) -> Any:
    """Return the condition's first true answer; the page lives on between the tries."""
    for _ in range(tries):
        if answer := condition():
            return answer
        page.wait_for_timeout(50)
    raise AssertionError("it did not come true within 5 s")
