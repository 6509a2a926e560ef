"""The tabs within Airflow's own pages, below a base path: theme, address, time zone, neighbours.

With the one Airflow that is installed (3.3): how older ones show external views is not tested.
"""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ui.browser.views import IN_AIRFLOW, View, colour, once

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 29, 45)"


@pytest.fixture(scope="module", params=list(IN_AIRFLOW), ids=lambda name: name.replace(" ", "_"))
def place(
    request: pytest.FixtureRequest, stack: Any, gallery: Any, session: Callable[[str], Any]
) -> Iterator[View]:
    """One of the tabs, opened in Airflow."""
    page = session("admin").new_page()
    view = View(page, stack.url, gallery.runs)
    view.open(IN_AIRFLOW[request.param])
    yield view
    page.close()


def test_a_tab_stays_below_the_base_path_and_follows_the_theme(place: View) -> None:
    """Field reports R32 and R33: plain external views, their links relative."""
    frame = place.frame()
    assert colour(frame) == LIGHT
    place.set_airflows_theme("dark")
    frame.locator("html.dark").wait_for(state="attached")
    assert colour(frame) == DARK
    place.set_airflows_theme("light")
    frame.locator("html:not(.dark)").wait_for(state="attached")
    assert colour(frame) == LIGHT
    assert frame.evaluate("location.pathname.startsWith('/team-a/ett/')")
    assert (place.errors, place.strays()) == ([], [])


def test_another_plugins_tab_is_another_tab(place: View) -> None:
    """Field report R33: each tab has an address of its own, and shows its own page."""
    fleet = "/plugin/ett-fleet" in place.page.url
    links = place.page.get_by_test_id("nav-sidebar" if fleet else "main-content")
    links.get_by_role("link", name="Neighbour", exact=True).click()
    heading = place.page.frame_locator("iframe[src*='neighbour']").get_by_role("heading")
    heading.get_by_text("Neighbour: ").wait_for()
    links.get_by_role("link", name="ETT% fleet" if fleet else "ETT%", exact=True).click()
    assert place.frame().evaluate("location.pathname.startsWith('/team-a/ett/')")
    assert place.errors == []


def test_the_first_paint_already_has_airflows_theme(view: View) -> None:
    view.page.add_init_script("localStorage.setItem('theme', 'dark')")
    frame = view.open(IN_AIRFLOW["dag"])
    assert colour(frame) == DARK
    view.page.evaluate("localStorage.removeItem('theme')")


def test_a_chosen_period_stands_in_airflows_address_and_outlives_a_reload(view: View) -> None:
    frame = view.open(IN_AIRFLOW["dag"])
    frame.locator("select[name=period]").select_option("7days")
    view.page.wait_for_url("**/plugin/ett?ett=*")
    address = view.page.url
    assert parse_qs(urlsplit(address).query)["ett"] == ["period=7days"]
    view.page.reload()
    assert view.frame().locator("select[name=period]").input_value() == "7days"
    view.page.goto("about:blank")
    view.page.goto(address)
    assert view.frame().locator("select[name=period]").input_value() == "7days"
    assert (view.errors, view.strays()) == ([], [])


def test_the_fleets_chosen_period_outlives_a_reload(view: View) -> None:
    """Airflow itself keeps the address of a page in its menu."""
    view.open(IN_AIRFLOW["fleet"]).locator("select[name=period]").select_option("7days")
    view.page.wait_for_url("**/plugin/ett-fleet/**period=7days*")
    view.page.reload()
    assert view.frame().locator("select[name=period]").input_value() == "7days"


def test_a_bar_opens_its_run(view: View) -> None:
    frame = view.open(IN_AIRFLOW["dag"])
    bar = frame.locator("#bars .trace.bars >> nth=0 >> .point >> nth=20").bounding_box()
    view.page.mouse.click(bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2)
    view.page.wait_for_url(f"{view.url}/dags/*/runs/*/plugin/ett-run*")


def test_a_runs_link_opens_its_tab(view: View) -> None:
    frame = view.open(IN_AIRFLOW["dag"])
    frame.get_by_role("link", name="manual__live").first.click()
    view.page.wait_for_url(f"{view.url}/dags/*/runs/manual__live/plugin/ett-run*")
    frame = view.frame()
    assert frame.locator("h1").inner_text().startswith("train")
    assert view.errors == []


def test_the_fleet_leads_to_a_dag(view: View) -> None:
    frame = view.open(IN_AIRFLOW["fleet"])
    frame.get_by_role("link", name="ctr_ranker_daily", exact=True).click()
    view.page.wait_for_url(f"{view.url}/dags/ctr_ranker_daily/plugin/ett*")
    view.frame()
    assert (view.errors, view.strays()) == ([], [])


def test_times_are_in_the_zone_that_is_chosen_in_airflow(view: View) -> None:
    def as_of(frame: Any) -> str:
        return str(frame.locator("form.bar").inner_text()).replace("\n", " ")

    assert " UTC" in as_of(view.open(IN_AIRFLOW["dag"]))
    view.page.evaluate("localStorage.setItem('timezone', JSON.stringify('Asia/Tokyo'))")
    view.page.reload()
    assert once(lambda: " JST" in as_of(view.frame()), view.page)
    view.page.evaluate("localStorage.removeItem('timezone')")
    view.page.reload()
    assert once(lambda: " UTC" in as_of(view.frame()), view.page)
    assert view.errors == []


@pytest.mark.parametrize("name", ["dag", "fleet"])
def test_a_table_is_downloaded_as_csv(view: View, name: str) -> None:
    frame = view.open(IN_AIRFLOW[name])
    with view.page.expect_download() as download:
        frame.get_by_role("link", name="Download as CSV").first.click()
    assert download.value.suggested_filename.endswith(".csv")
    header, *rows = download.value.path().read_text(encoding="utf-8").splitlines()
    assert header.count(",") > 4
    assert len(rows) > 10
