"""The time zone that is chosen in Airflow, and the view in Airflow's address."""

from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from tests.ui.shell.site import FLEET, RUN_TAB, TAB, Site
from tests.ui.shell.wait import until

pytestmark = pytest.mark.browser

OURS = "/team-a/ett/dag/ranker"
READY = "body[data-ready]"


def frame_of(page: Any) -> Any:
    """Wait for the frame's page; return the frame."""
    page.frame_locator("iframe").locator(READY).wait_for()
    return page.frames[1]


def choose(page: Any, zone: str) -> None:
    page.evaluate("zone => localStorage.setItem('timezone', JSON.stringify(zone))", zone)


def ours(page: Any, name: str = "ett") -> str | None:
    found: str | None = page.evaluate(
        "name => new URLSearchParams(location.search).get(name)", name
    )
    return found


def test_a_choice_goes_into_airflows_address_and_survives_a_reload(page: Any, site: Site) -> None:
    page.goto(TAB + "?tab=x")
    frame_of(page).get_by_label("Period").select_option("7days")
    until(page, "location.search.includes('ett=')")
    assert ours(page) == "period=7days"
    assert ours(page, "tab") == "x"
    assert page.evaluate("history.state") == {"idx": 7, "key": "router"}
    before = len(site.queries)
    page.reload()
    frame = frame_of(page)
    assert frame.get_by_label("Period").input_value() == "7days"
    assert site.queries[before:] == ["", "period=7days"]
    assert ours(page) == "period=7days"


def test_a_link_leads_to_the_view(page: Any, site: Site) -> None:
    page.goto(TAB + "?ett=period%3D7days%26rows%3Da%2520b")
    assert frame_of(page).get_by_label("Period").input_value() == "7days"
    assert site.queries == ["", "period=7days&rows=a+b"]


def test_going_back_goes_back(page: Any, site: Site) -> None:
    page.goto(TAB)
    frame = frame_of(page)
    frame.get_by_label("Period").select_option("7days")
    until(page, "location.search.includes('7days')")
    frame_of(page).get_by_label("Period").select_option("30runs")
    until(page, "location.search.includes('30runs')")
    page.go_back()
    until(page, "location.search.includes('7days')")
    assert frame_of(page).get_by_label("Period").input_value() == "7days"


def test_what_airflow_asked_for_is_not_said_twice_and_not_overruled(page: Any, site: Site) -> None:
    page.goto(RUN_TAB)
    frame_of(page)
    assert ours(page) is None
    page.goto(RUN_TAB + "?ett=run_id%3Dr2%26job%3Dj1")
    frame_of(page)
    until(page, "location.search.includes('ett=job')")
    assert site.queries[-1] == "run_id=r1&job=j1"


def test_airflow_mirrors_the_menus_pages_itself(page: Any, site: Site) -> None:
    page.goto(FLEET)
    frame_of(page).get_by_label("Period").select_option("7days")
    until(page.frames[1], "location.search.includes('7days')")
    frame_of(page)
    assert ours(page) is None


def test_empty_fields_are_not_named(page: Any, site: Site) -> None:
    page.goto(OURS)
    page.get_by_label("Period").select_option("7days")
    page.wait_for_url("**/ranker?period=7days")


def test_a_typed_date_is_sent_once_it_is_whole(page: Any, site: Site) -> None:
    page.goto(OURS)
    page.locator(READY).wait_for()
    field = page.get_by_label("Since")
    field.press_sequentially("11122026")
    assert site.queries == [""]
    field.blur()
    page.wait_for_url("**since=2026-11-12**")
    until(page, "document.activeElement.name === 'since'")


def test_the_focus_stays_on_the_control(page: Any, site: Site) -> None:
    page.goto(OURS)
    page.get_by_label("Period").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**period=7days")
    page.locator(READY).wait_for()
    assert page.evaluate("document.activeElement.name") == "period"


def test_airflows_zone_is_followed(page: Any, site: Site) -> None:
    page.goto(TAB)
    assert frame_of(page).locator("html").get_attribute("data-zone") == "UTC"
    choose(page, "Europe/Berlin")
    frame = frame_of(page)
    until(frame, "document.documentElement.dataset.zone === 'Europe/Berlin'")
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["value"]) == ("ett_zone", "Europe%2FBerlin")
    assert (cookie["path"], cookie["sameSite"]) == ("/team-a/ett", "Lax")
    asked = len(site.queries)
    page.reload()
    frame_of(page)
    assert len(site.queries) == asked + 1
    page.evaluate("localStorage.removeItem('timezone')")
    until(page.frames[1], "document.documentElement.dataset.zone === 'UTC'")


def test_a_zone_and_a_view_take_one_more_request(page: Any, site: Site) -> None:
    page.goto(TAB)
    frame_of(page)
    choose(page, "Asia/Tokyo")
    until(page.frames[1], "document.documentElement.dataset.zone === 'Asia/Tokyo'")
    page.goto("about:blank")
    site.queries.clear()
    page.context.clear_cookies()
    page.goto(TAB + "?ett=period%3D7days")
    frame = frame_of(page)
    assert frame.locator("html").get_attribute("data-zone") == "Asia/Tokyo"
    assert site.queries == ["", "period=7days"]


@pytest.mark.parametrize("kept", ['"Mars/Olympus"', '""', "no json", '{"a": 1}', '"; path=/"'])
def test_a_strange_zone_never_reloads_for_ever(page: Any, site: Site, kept: str) -> None:
    page.goto(TAB)
    frame_of(page)
    page.evaluate("kept => localStorage.setItem('timezone', kept)", kept)
    page.goto("about:blank")
    site.queries.clear()
    page.goto(TAB)
    frame_of(page)
    page.wait_for_load_state("networkidle")
    assert len(site.queries) <= 2


def test_without_cookies_the_page_stays_in_utc(page: Any, site: Site) -> None:
    page.add_init_script(
        "Object.defineProperty(Document.prototype, 'cookie', { get: () => '', set: () => {} })"
    )
    page.goto(TAB)
    frame_of(page)
    choose(page, "Europe/Berlin")
    page.goto("about:blank")
    site.queries.clear()
    page.goto(TAB)
    frame = frame_of(page)
    page.wait_for_load_state("networkidle")
    assert frame.locator("html").get_attribute("data-zone") == "UTC"
    assert len(site.queries) == 1


def test_a_server_that_sees_no_cookie_is_asked_once(page: Any, site: Site) -> None:
    page.route("**/ett/dag/**", lambda route: route.continue_(headers={"accept": "text/html"}))
    page.goto(TAB)
    frame_of(page)
    choose(page, "Europe/Berlin")
    page.goto("about:blank")
    site.queries.clear()
    page.goto(TAB)
    frame_of(page)
    page.wait_for_load_state("networkidle")
    assert len(site.queries) <= 2


def test_a_page_alone_follows_no_zone(page: Any, site: Site) -> None:
    page.goto(OURS)
    page.locator(READY).wait_for()
    choose(page, "Europe/Berlin")
    page.reload()
    page.locator(READY).wait_for()
    assert page.locator("html").get_attribute("data-zone") == "UTC"
    assert page.context.cookies() == []


def test_the_theme_is_airflows(page: Any, site: Site) -> None:
    site.theme = "dark"
    page.goto(TAB)
    frame = frame_of(page)
    assert "dark" in (frame.locator("html").get_attribute("class") or "")
    page.evaluate("document.documentElement.className = 'light'")
    until(frame, "!document.documentElement.classList.contains('dark')")
