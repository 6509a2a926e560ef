"""The tab inside a real Airflow under a base path, in a real Chromium."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

pytest.importorskip("airflow")
sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium"),
]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BASE_PATH = "/team-a"
HOSTILE = '"><img src=x onerror="document.title=\'gone\'">$bg<b>x</b>'
DAGS = """
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator

for name in ("ranker", "untrained"):
    with DAG(name, schedule=None) as globals()[name]:
        EmptyOperator(task_id="train")
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, repo: Path, job_writer: Any) -> Iterator[Any]:
    """Airflow at /team-a with two Dags, one of which has trained three times."""
    from airflow_ett.demo.stack import AirflowStack

    home = tmp_path_factory.mktemp("airflow-ui")
    dags = home / "dags"
    dags.mkdir()
    (dags / "dags.py").write_text(DAGS)
    jobs = job_writer(home / "ett" / "runs", f"sqlite:///{home}/ett/ett.db")
    now = time.time_ns()
    for hours, run_id, failures in ((3, "first", 0), (2, "second", 1), (1, HOSTILE, 0)):
        jobs.write("ranker", run_id, now - hours * 3600 * 10**9, failures=failures)
    stack = AirflowStack(
        home,
        dags=dags,
        components=("api-server", "dag-processor"),
        env={
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(repo / "plugins"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "PYTHONPATH": str(repo),
        },
    )
    stack.url += BASE_PATH
    stack.env["AIRFLOW__API__BASE_URL"] = stack.url
    stack.start()
    try:
        _wait_for_dags(stack, 2)
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """A browser page of the signed-in admin that keeps what went wrong and what was asked for."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("response", self._answered)

    def open(self, dag_id: str) -> Any:
        """Open the Dag's tab in Airflow's own page; return the frame."""
        self.page.goto(f"{self.url}/dags/{dag_id}/plugin/ett")
        frame = self.page.frame_locator("iframe")
        frame.locator("main").wait_for()
        return frame

    def colour(self, frame: Any) -> str:
        return str(frame.locator("body").evaluate("e => getComputedStyle(e).backgroundColor"))

    def set_theme(self, theme: str) -> None:
        self.page.evaluate("theme => { document.documentElement.className = theme; }", theme)

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.errors.append(f"{response.status} {response.url}")


@pytest.fixture(scope="module")
def admin(stack: Any, chromium: Any) -> Iterator[Any]:
    """A browser session of the admin; its cache serves all tests."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    parts = urlsplit(stack.url)
    site = f"{parts.scheme}://{parts.netloc}/"
    context.add_cookies([{"name": "_token", "value": _token(stack), "url": site}])
    yield context
    context.close()


@pytest.fixture
def tab(stack: Any, admin: Any) -> Iterator[Tab]:
    page = admin.new_page()
    yield Tab(page, stack.url)
    page.close()


def test_every_route_asks_an_anonymous_visitor_to_sign_in(stack: Any) -> None:
    from airflow_ett.api.app import is_for_programs
    from airflow_ett.ui.app import create_app

    pages = [route.path for route in create_app().routes if not is_for_programs(route.path)]
    for path in [*pages, "/api/v1/docs"]:
        url = f"{stack.url}/ett{path}".replace("{dag_id}", "ranker")
        for headers in ({}, {"Cookie": "_token=forged"}):
            answer = requests.get(url, headers=headers, timeout=10)
            assert answer.status_code in (401, 403) if headers else answer.status_code == 401
            assert "Your session has ended" in answer.text
    token = _token(stack)
    bearer = {"Authorization": f"Bearer {token}"}
    assert requests.get(f"{stack.url}/ett/dag/ranker", headers=bearer, timeout=10).ok


def test_the_tab_draws_one_bar_per_run_and_follows_the_theme(tab: Tab) -> None:
    frame = tab.open("ranker")
    frame.locator("body[data-ready]").wait_for()
    assert frame.locator("#bars .trace.bars").count() == 7
    assert frame.locator("#bars .trace.bars >> nth=0 >> .point").count() == 3
    light, bar_light = tab.colour(frame), _fill(frame)
    tab.set_theme("dark")
    frame.locator("html.dark").wait_for()
    assert (light, tab.colour(frame)) == ("rgb(255, 255, 255)", "rgb(22, 29, 45)")
    assert (bar_light, _fill(frame)) == ("rgb(92, 136, 197)", "rgb(113, 149, 219)")
    assert tab.errors == []


def test_the_first_paint_already_has_the_hosts_theme(tab: Tab) -> None:
    tab.page.add_init_script("localStorage.setItem('theme', 'dark')")
    frame = tab.open("ranker")
    frame.locator("html.dark").wait_for()
    assert tab.colour(frame) == "rgb(22, 29, 45)"
    tab.page.evaluate("localStorage.removeItem('theme')")


def test_everything_stays_below_the_base_path(tab: Tab) -> None:
    frame = tab.open("ranker")
    frame.locator("body[data-ready]").wait_for()
    tab.page.reload()
    frame.locator("body[data-ready]").wait_for()
    frame.locator("select[name=period]").select_option("7days")
    frame.locator("option[value='7days'][selected]").wait_for(state="attached")
    asked = [url for url in tab.requests if url.startswith("http")]
    assert [url for url in asked if "/ett/static/plotly" in url]
    assert [url for url in asked if not url.startswith(tab.url + "/")] == []
    frame.get_by_role("link", name="second").click()
    tab.page.wait_for_url(f"{tab.url}/dags/ranker/runs/second**")


def test_losses_only_takes_the_effective_bars_away(tab: Tab) -> None:
    frame = tab.open("ranker")
    frame.locator("body[data-ready]").wait_for()
    frame.get_by_role("button", name="Losses only").click()
    assert frame.locator("#bars .trace.bars").count() == 6
    legend = frame.locator(".legend [data-group=effective]")
    assert legend.get_attribute("aria-pressed") == "false"
    legend.click()
    assert frame.locator("#bars .trace.bars").count() == 7
    whole = frame.get_by_role("button", name="Whole")
    assert whole.get_attribute("aria-pressed") == "true"


def test_a_hostile_run_id_is_only_text(tab: Tab) -> None:
    frame = tab.open("ranker")
    frame.locator("body[data-ready]").wait_for()
    assert frame.get_by_role("link", name=HOSTILE).count() == 1
    box = frame.locator("#bars .trace.bars >> nth=0 >> .point >> nth=2").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = frame.locator("#bars .hoverlayer")
    hover.get_by_text(HOSTILE).wait_for()
    assert "Wall clock" in hover.text_content()
    assert frame.locator("img").count() == 0
    assert tab.errors == []


def test_an_untrained_dag_says_what_to_add(tab: Tab) -> None:
    frame = tab.open("untrained")
    frame.get_by_role("heading", name="No training measured yet").wait_for()
    assert frame.locator("ins").count() > 5


@pytest.mark.parametrize("width", [1280, 800, 640])
def test_no_page_scrolls_sideways(tab: Tab, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.goto(f"{tab.url}/ett/dag/ranker")
    tab.page.locator("body[data-ready]").wait_for()
    assert tab.page.evaluate("document.documentElement.scrollWidth") == width


def test_without_javascript_the_tables_stand(stack: Any, chromium: Any) -> None:
    context = chromium.new_context(
        java_script_enabled=False,
        extra_http_headers={"Authorization": f"Bearer {_token(stack)}"},
    )
    page = context.new_page()
    page.goto(f"{stack.url}/ett/dag/ranker")
    assert page.get_by_text("The chart needs JavaScript.").is_visible()
    assert page.get_by_role("button", name="Show").is_visible()
    assert page.locator("tbody th").count() == 7 + 3
    context.close()


def test_a_store_of_another_revision_names_the_way_out(stack: Any, tab: Tab) -> None:
    with _revision(stack, "0001"):
        frame = tab.open("ranker")
        frame.get_by_role("heading", name="The ETT% store needs an upgrade").wait_for()
        assert "airflow-ett db upgrade" in frame.locator("main").inner_text()
    frame.get_by_role("link", name="Try again").click()
    frame.locator("body[data-ready]").wait_for()


class _revision:
    """Within it the store claims to be at another revision."""

    def __init__(self, stack: Any, revision: str) -> None:
        self.file = stack.home / "ett" / "ett.db"
        self.revision = revision

    def __enter__(self) -> None:
        self.true = self._set(self.revision)

    def __exit__(self, *_: object) -> None:
        self._set(self.true)

    def _set(self, revision: str) -> str:
        with sqlite3.connect(self.file) as connection:
            (old,) = connection.execute("SELECT version_num FROM ett_alembic_version").fetchone()
            connection.execute("UPDATE ett_alembic_version SET version_num = ?", (revision,))
        return str(old)


def _fill(frame: Any) -> str:
    bar = frame.locator("#bars .trace.bars >> nth=0 >> .point path >> nth=0")
    return str(bar.evaluate("e => getComputedStyle(e).fill"))


def _token(stack: Any) -> str:
    passwords = json.loads((stack.home / "passwords.json").read_text())
    user = {"username": "admin", "password": passwords["admin"]}
    answer = requests.post(f"{stack.url}/auth/token", json=user, timeout=10)
    return str(answer.json()["access_token"])


def _wait_for_dags(stack: Any, count: int) -> None:
    headers = {"Authorization": f"Bearer {_token(stack)}"}
    deadline = time.monotonic() + 60
    found: list[str] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} were parsed"
        answer = requests.get(f"{stack.url}/api/v2/dags", headers=headers, timeout=10)
        found = [dag["dag_id"] for dag in answer.json()["dags"]]
        time.sleep(0.5)
