"""What holds for every view: nothing fails, nothing strays, all widths, both themes, axe, paper."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest
import requests

from tests.ui.browser.views import ALONE, View, colour, fits, once, violations

pytestmark = [pytest.mark.airflow, pytest.mark.browser]


@pytest.fixture(scope="module", params=list(ALONE), ids=lambda name: name.replace(" ", "_"))
def shown(
    request: pytest.FixtureRequest, stack: Any, gallery: Any, session: Callable[[str], Any]
) -> Iterator[View]:
    """A view that is drawn, at 1280 pixels and light; whoever changes that changes it back."""
    page = session("admin").new_page()
    view = View(page, stack.url, gallery.runs)
    view.open(ALONE[request.param])
    yield view
    page.close()


def test_nothing_fails_and_nothing_is_asked_of_others(shown: View) -> None:
    assert shown.errors == []
    assert shown.strays() == []
    assert shown.page.locator("h1").count() == 1


def test_every_link_leads_somewhere_below_the_base_path(
    shown: View, tokens: dict[str, str]
) -> None:
    """Field report R32. Airflow's own pages answer for every address, so theirs are not asked."""
    here = shown.page.url.split("#")[0]
    links = shown.page.eval_on_selector_all("a[href]", "links => links.map((a) => a.href)")
    for link in set(links):
        page, _, part = link.partition("#")
        if page == here and part:
            assert shown.page.locator(f"[id='{unquote(part)}']").count() == 1, link
        elif link.startswith(f"{shown.url}/ett/"):
            answer = requests.get(link, cookies={"_token": tokens["admin"]}, timeout=10)
            assert answer.status_code == 200, link
        else:
            assert link.startswith((f"{shown.url}/", "https://")), link


@pytest.mark.parametrize("width", [1280, 1000, 800, 640])
def test_no_page_scrolls_sideways(shown: View, width: int) -> None:
    shown.page.set_viewport_size({"width": width, "height": 900})
    try:
        # Charts follow the window a moment later.
        once(lambda: fits(shown.frame()), shown.page)
    finally:
        shown.page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(shown: View, axe: str, theme: str) -> None:
    shown.page.emulate_media(color_scheme=theme)
    expected = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 29, 45)"}[theme]
    try:
        once(lambda: colour(shown.frame()) == expected, shown.page)
        once(lambda: not shown.frame().evaluate("document.getAnimations().length"), shown.page)
        assert violations(shown.frame(), axe) == []
    finally:
        shown.page.emulate_media(color_scheme="light")


def test_paper_is_white_and_as_wide_as_the_page(shown: View) -> None:
    shown.page.emulate_media(media="print", color_scheme="dark")
    white = ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    try:
        once(lambda: colour(shown.frame()) in white and fits(shown.frame()), shown.page)
    finally:
        shown.page.emulate_media(media="screen", color_scheme="light")
