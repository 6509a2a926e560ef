"""By keyboard alone, and without JavaScript."""

from typing import Any

import pytest

from tests.ui.browser.views import ALONE, View

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

KEPT = ["dag", "run that lives", "run of several jobs", "fleet", "guide", "dag without a training"]
REACHABLE = "a[href], button, select, input, summary, [tabindex='0']"


@pytest.mark.parametrize("name", KEPT, ids=lambda name: name.replace(" ", "_"))
def test_the_keyboard_reaches_everything_in_reading_order(view: View, name: str) -> None:
    frame = view.open(ALONE[name])
    wanted = frame.evaluate(
        """selector => [...document.querySelectorAll(selector)]
          .filter((e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0)
          .map((e, index) => (e.dataset.order = String(index)))""",
        REACHABLE,
    )
    reached, unseen = [], []
    while len(reached) < len(wanted):
        view.page.keyboard.press("Tab")
        order, text, outline = frame.evaluate(
            """() => {
              const e = document.activeElement;
              const style = getComputedStyle(e);
              const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
              return [e.dataset.order, e.outerHTML.slice(0, 90), seen];
            }"""
        )
        if order is None and text.startswith("<body"):
            break
        # What scrolls within the page is reached, too.
        if order is not None:
            reached.append(order)
        if not outline:
            unseen.append(text)
    assert reached == wanted
    assert unseen == []


@pytest.mark.parametrize("name", KEPT, ids=lambda name: name.replace(" ", "_"))
def test_without_javascript_the_tables_stand(
    stack: Any, gallery: Any, chromium: Any, tokens: dict[str, str], name: str
) -> None:
    context = chromium.new_context(
        java_script_enabled=False,
        extra_http_headers={"Authorization": f"Bearer {tokens['admin']}"},
    )
    page = context.new_page()
    page.goto(View(page, stack.url, gallery.runs).address(ALONE[name]))
    charts = page.locator(".chart").count()
    assert page.locator(".chart p", has_text="The chart needs JavaScript.").count() == charts
    assert page.locator("form.bar").count() == page.locator("form.bar button").count()
    assert page.locator("h1").count() == 1
    if charts:
        assert page.locator("tbody th:visible").count()
    context.close()
