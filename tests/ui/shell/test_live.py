"""A live page in a browser: asks while somebody looks, and changes without being noticed."""

from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from tests.ui.shell.site import Site
from tests.ui.shell.wait import until

pytestmark = pytest.mark.browser

OURS = "/team-a/ett/dag/ranker"
# Never says "seen" by itself: the page is told when it is closed, too, and would ask once more.
HIDE = """hidden => {
  delete document.hidden;
  if (hidden) Object.defineProperty(document, "hidden", { value: true, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""

# The page's patience ends when the test says so.
PATIENCE = """AbortSignal.timeout = () => {
  const patience = new AbortController();
  window.late = () => patience.abort();
  return patience.signal;
}"""


@pytest.fixture
def live(page: Any, site: Site) -> Any:
    """The page, drawn, with a clock of its own that stands still: else a slow machine asks more."""
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.goto(OURS)
    page.wait_for_selector("body[data-ready]")
    return page


def pass_time(page: Any, seconds: float) -> None:
    page.clock.run_for(int(seconds * 1000))


def asked(page: Any, site: Site, name: str, times: int) -> None:
    """Wait until the server was asked so often."""
    for _ in range(500):
        if site.asked[name] >= times:
            break
        page.wait_for_timeout(10)
    assert site.asked[name] == times


def test_nothing_new_asks_for_nothing_more(live: Any, site: Site) -> None:
    for beats in range(1, 4):
        live.evaluate("delete document.body.dataset.at")
        pass_time(live, 5)
        until(live, "document.body.dataset.at")  # only then does it wait to ask again
        assert site.asked["pulse"] == beats
    assert site.asked["page"] == 1
    assert site.asked["figure"] == 1


def test_a_change_keeps_what_the_reader_did(live: Any, site: Site) -> None:
    live.get_by_role("button", name="Start").click()
    live.get_by_role("button", name="Wasted").click()
    live.get_by_text("More").click()
    live.get_by_role("link", name="r2").focus()
    live.locator(".scroll").evaluate("box => { box.scrollLeft = 100 }")
    live.evaluate("scrollTo(0, 700)")
    live.evaluate("window.kept = [...document.querySelectorAll('.main-svg')]")
    where = "document.querySelector('.foot').getBoundingClientRect().top"
    before = live.evaluate(where)
    site.rows, site.state, site.version = (*site.rows, "r4"), "with a notice", "2"
    pass_time(live, 5)
    live.get_by_role("link", name="r4").wait_for()
    until(live, "document.getElementById('bars').data[0].x.length === 4")
    assert live.locator("#state").inner_text() == "with a notice"
    assert live.get_by_role("status").inner_text() == "Look at this."
    assert live.evaluate("document.activeElement.textContent") == "r2"
    assert live.locator("details").get_attribute("open") is not None
    assert live.evaluate("kept.every(svg => svg.isConnected)")
    assert live.evaluate("document.getElementById('line').layout.xaxis.range") == [0.5, 1.5]
    assert live.evaluate("document.getElementById('bars').data[0].visible") is False
    assert live.locator("[data-range][aria-pressed=true]").all_text_contents() == ["Start"]
    assert live.locator("[data-group]").get_attribute("aria-pressed") == "false"
    assert live.evaluate(where) == pytest.approx(before, abs=1)
    assert live.locator(".scroll").evaluate("box => box.scrollLeft") == 100


def test_the_whole_job_stays_whole_as_it_grows(live: Any, site: Site) -> None:
    live.get_by_role("button", name="Whole job").click()
    until(live, "document.getElementById('line').layout.xaxis.range[1] === 3")
    site.rows, site.version = (*site.rows, "r4"), "2"
    pass_time(live, 5)
    until(live, "document.getElementById('line').layout.xaxis.range[1] === 4")


def test_a_focused_row_that_is_gone_leaves_the_focus_near(live: Any, site: Site) -> None:
    live.get_by_role("link", name="r2").focus()
    site.rows, site.version = ("r1", "r3"), "2"
    pass_time(live, 5)
    until(live, "document.querySelectorAll('tr').length === 2")
    assert live.evaluate("document.activeElement.textContent") == "r1"


def test_nobody_looks_nobody_asks(live: Any, site: Site) -> None:
    live.evaluate(HIDE, True)
    pass_time(live, 60)
    assert site.asked["pulse"] == 0
    site.state, site.version = "succeeded", "2"
    live.evaluate(HIDE, False)
    live.get_by_text("succeeded").first.wait_for()
    assert site.asked["pulse"] == 1


def test_who_looks_away_waits_for_nothing(live: Any, site: Site) -> None:
    live.route("**/figure?*", lambda route: None)
    site.rows, site.version = (*site.rows, "r4"), "2"
    with live.expect_request("**/figure?*"):
        pass_time(live, 5)
    with live.expect_event("requestfailed"):
        live.evaluate(HIDE, True)
    live.unroute("**/figure?*")
    live.evaluate(HIDE, False)
    live.get_by_role("link", name="r4").wait_for()
    assert not live.locator(".stale").count()
    asked(live, site, "pulse", 2)


def test_who_leaves_asks_for_nothing(live: Any, site: Site) -> None:
    live.evaluate(HIDE, True)
    live.evaluate(HIDE, False)
    asked(live, site, "pulse", 1)
    live.goto("about:blank")
    live.goto(OURS)
    assert site.asked["pulse"] == 1


def test_the_end_of_the_job_is_the_end_of_asking(live: Any, site: Site) -> None:
    site.state, site.version = "succeeded", None
    pass_time(live, 5)
    live.get_by_text("succeeded").first.wait_for()
    until(live, "document.body.dataset.pulse === undefined")
    pass_time(live, 120)
    assert site.asked["pulse"] == 1
    live.evaluate(HIDE, True)
    live.evaluate(HIDE, False)
    assert site.asked["pulse"] == 1


@pytest.mark.parametrize("broken", ["pulse", "page", "figure"])
def test_a_failure_is_said_and_tried_again_ever_less_often(
    live: Any, site: Site, broken: str
) -> None:
    shown = live.locator("#state").inner_text()
    site.status[broken] = 503
    site.version, site.state = "2", "succeeded"
    pass_time(live, 5)
    said = live.get_by_text("Last updated 00:53:20 UTC; trying again.")
    said.wait_for()
    assert live.locator("#state").inner_text() == shown
    live.locator(".stale").evaluate("words => { words.textContent = '' }")
    pass_time(live, 9)
    assert site.asked["pulse"] == 1
    pass_time(live, 1)
    said.wait_for()
    assert site.asked["pulse"] == 2
    site.status.clear()
    pass_time(live, 20)
    live.get_by_text("succeeded").first.wait_for()
    until(live, "!document.querySelector('.stale')")


def test_a_figure_that_never_comes_is_said_and_asked_for_again(live: Any, site: Site) -> None:
    live.evaluate(PATIENCE)
    live.route("**/figure?*", lambda route: None)
    site.rows, site.version = (*site.rows, "r4"), "2"
    with live.expect_request("**/figure?*"):
        pass_time(live, 5)
    live.evaluate("late()")
    live.get_by_text("trying again.").wait_for()
    live.unroute("**/figure?*")
    pass_time(live, 10)
    live.get_by_role("link", name="r4").wait_for()


def test_an_ended_session_is_said(live: Any, site: Site) -> None:
    site.status |= {"pulse": 401, "page": 401}
    pass_time(live, 5)
    live.get_by_role("heading", name="Your session has ended").wait_for()
    pass_time(live, 60)
    assert site.asked["pulse"] == 1


def test_the_theme_reaches_what_came_later(live: Any, site: Site) -> None:
    site.rows, site.version = (*site.rows, "r4"), "2"
    pass_time(live, 5)
    live.get_by_role("link", name="r4").wait_for()
    live.emulate_media(color_scheme="dark")
    until(live, "document.querySelector('#bars .point path').style.fill === 'rgb(224, 126, 69)'")
