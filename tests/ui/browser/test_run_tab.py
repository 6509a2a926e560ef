"""The run tab: zoom, live changes, hostile hovers."""

from typing import Any

import pytest

from tests.ui.browser.views import ALONE, View, markup, once
from tests.ui.gallery.names import HOSTILE, STEADY_RUN

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

HOVER_EACH = """async () => {
  const chart = document.querySelector(".chart");
  const said = [];
  for (const [curveNumber, { xaxis, yaxis }] of chart.data.entries()) {
    Plotly.Fx.hover(chart, [{ curveNumber, pointNumber: 0 }], (xaxis || "x") + (yaxis || "y"));
    // Plotly shows one hover in 50 ms.
    await new Promise((done) => setTimeout(done, 80));
    said.push(chart.querySelector(".hoverlayer").textContent);
  }
  return said;
}"""
STEADY = "ett/run/{steady_dag}?run_id={steady}"


SECONDS = """times => times.map(time =>
  Date.parse(String(time).replace(' ', 'T').replace(/Z?$/, 'Z')) / 1000)"""


def _range(frame: Any) -> list[float]:
    found: list[float] = frame.evaluate(
        f"({SECONDS})(document.querySelector('.chart').layout.xaxis.range)"
    )
    return found


def _wanted(preset: Any) -> list[float]:
    found: list[float] = preset.evaluate(f"e => ({SECONDS})(JSON.parse(e.dataset.range))")
    return found


def _about(range_s: list[float]) -> Any:
    """Return what equals a range: Plotly moves it by parts of a millisecond when it draws anew."""
    return pytest.approx(range_s, abs=0.01)


def test_a_preset_zooms_both_panels(view: View) -> None:
    frame = view.open(ALONE["run that lives"])
    whole = _range(frame)
    preset = frame.locator("[data-range]", has_text="Recovery 1")
    preset.click()
    assert once(lambda: _range(frame) == _about(_wanted(preset)), view.page)
    assert preset.get_attribute("aria-pressed") == "true"
    frame.locator("[data-range]", has_text="Whole job").click()
    assert once(lambda: _range(frame) == _about(whole), view.page)


def test_dragging_zooms_and_a_double_click_shows_all(view: View) -> None:
    frame = view.open(ALONE["run that lives"])
    whole = _range(frame)
    box = frame.locator(".chart .nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    view.page.mouse.move(box["x"] + box["width"] * 0.3, y)
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=5)
    view.page.mouse.up()
    assert once(lambda: _range(frame) != _about(whole), view.page)
    view.page.mouse.dblclick(box["x"] + box["width"] * 0.5, y)
    assert once(lambda: _range(frame) == _about(whole), view.page)


def test_a_hostile_job_is_only_text_in_every_hover(view: View) -> None:
    frame = view.open(ALONE["run of hostile names"])
    said = frame.evaluate(HOVER_EACH)
    # The phase that a user named, and the failure's evidence.
    assert sum(HOSTILE in text for text in said) >= 2
    assert HOSTILE in frame.locator("main").inner_text()
    assert markup(frame) == 0
    assert view.errors == []


def test_what_a_live_job_tells_appears_without_a_reload(view: View, gallery: Any) -> None:
    view.page.clock.install()
    frame = view.open(STEADY)
    frame.evaluate("window.marked = true")
    preset = frame.locator("[data-range]", has_text="Start")
    preset.click()
    frame.evaluate("scrollTo(0, 200)")
    kept = _place(frame)
    numbers = frame.locator(".stats")
    before = numbers.inner_text()
    gallery.go_on(STEADY_RUN, 300)
    view.page.clock.run_for(6_000)
    assert once(lambda: numbers.inner_text() != before, view.page)
    assert frame.evaluate("window.marked")
    assert _place(frame) == kept
    assert _range(frame) == _about(_wanted(preset))  # its margin follows the wall clock
    assert once(lambda: _asked_for_pulses(view, 6_000), view.page)
    _hide(frame, hidden=True)
    assert _asked_for_pulses(view, 60_000) == 0
    _hide(frame, hidden=False)
    assert once(lambda: _asked_for_pulses(view, 6_000), view.page)
    gallery.go_on(STEADY_RUN)
    view.page.clock.run_for(6_000)
    assert once(lambda: not frame.locator("body[data-pulse]").count(), view.page)
    assert _asked_for_pulses(view, 60_000) == 0
    assert "Provisional" not in frame.locator("main").inner_text()
    assert view.errors == []


def _place(frame: Any) -> list[Any]:
    """Return where the reader is: what has the focus, how far the page is scrolled."""
    found: list[Any] = frame.evaluate("[document.activeElement.textContent.trim(), scrollY]")
    return found


def _asked_for_pulses(view: View, milliseconds: int) -> int:
    """Let time pass in the page; return how often it has asked meanwhile."""
    known = len(view.requests)
    view.page.clock.run_for(milliseconds)
    view.page.wait_for_timeout(300)
    return sum("/ett/pulse/" in url for url in view.requests[known:])


def _hide(frame: Any, *, hidden: bool) -> None:
    """Let the page believe that its window went into the background, or came back."""
    frame.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )
