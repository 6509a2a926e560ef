"""Charts in a browser: drawn once, zoomed, filtered, linked, and failing in words."""

from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from tests.ui.shell.site import TAB, Site
from tests.ui.shell.wait import until

pytestmark = pytest.mark.browser

OURS = "/team-a/ett/dag/ranker"
READY = "body[data-ready]"


def open_page(page: Any) -> None:
    page.goto(OURS)
    page.wait_for_selector(READY)


def ranges(page: Any, chart: str = "line") -> dict[str, list[float]]:
    found: dict[str, list[float]] = page.evaluate(
        "id => { const l = document.getElementById(id).layout;"
        " return { x: [...l.xaxis.range], y: [...l.yaxis.range] }; }",
        chart,
    )
    return found


def pressed(page: Any) -> list[str]:
    found: list[str] = page.locator("[data-range][aria-pressed=true]").all_text_contents()
    return found


def test_both_kinds_are_drawn_with_one_request(page: Any, site: Site) -> None:
    open_page(page)
    assert page.locator(".chart .main-svg").count() >= 2
    page.emulate_media(color_scheme="dark")
    until(page, "document.documentElement.classList.contains('dark')")
    until(page, "document.querySelector('#bars .point path').style.fill === 'rgb(224, 126, 69)'")
    assert site.asked["figure"] == 1
    assert page.get_by_role("img", name="A line.").count() == 1


def test_charts_take_no_focus(page: Any, site: Site) -> None:
    open_page(page)
    assert page.locator(".chart [tabindex], .chart a[href], .chart button").count() == 0


def test_presets_zoom_and_a_double_click_resets(page: Any, site: Site) -> None:
    open_page(page)
    assert ranges(page) == {"x": [0, 9], "y": [0, 5]}
    page.get_by_role("button", name="Start").click()
    until(page, "document.getElementById('line').layout.xaxis.range[1] === 1.5")
    assert ranges(page) == {"x": [0.5, 1.5], "y": [0, 2]}
    assert pressed(page) == ["Start"]
    page.emulate_media(color_scheme="dark")
    until(page, "document.documentElement.classList.contains('dark')")
    assert ranges(page) == {"x": [0.5, 1.5], "y": [0, 2]}
    page.locator("#line .nsewdrag").dblclick()
    until(page, "document.getElementById('line').layout.xaxis.range[1] === 9")
    assert ranges(page) == {"x": [0, 9], "y": [0, 5]}
    assert pressed(page) == ["Whole job"]


def test_many_presets_are_a_list(page: Any, site: Site) -> None:
    open_page(page)
    page.evaluate(
        """() => { document.querySelector('.seg').outerHTML = `<select data-for="line">
          <option data-range="[0, 9]">Whole job</option>
          <option data-range="[2, 3]" data-yrange="[1, 4]">Recovery 5</option></select>` }"""
    )
    chosen = page.locator("select[data-for]")
    chosen.select_option("Recovery 5")
    until(page, "document.getElementById('line').layout.xaxis.range[0] === 2")
    assert ranges(page) == {"x": [2, 3], "y": [1, 4]}
    page.locator("#line .nsewdrag").dblclick()
    until(page, "document.getElementById('line').layout.xaxis.range[1] === 9")
    assert chosen.input_value() == "Whole job"


def test_a_drag_zooms_the_time_alone(page: Any, site: Site) -> None:
    open_page(page)
    box = page.locator("#line .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 2 / 3, box["y"] + 90, steps=5)
    page.mouse.up()
    until(page, "document.getElementById('line').layout.xaxis.range[0] > 2")
    assert ranges(page)["x"] == pytest.approx([3, 6], abs=0.2)
    assert ranges(page)["y"] == [0, 5]
    assert pressed(page) == []
    before = ranges(page, "bars")
    page.locator("#bars .nsewdrag").hover()
    page.mouse.down()
    page.mouse.move(700, 300, steps=5)
    page.mouse.up()
    assert ranges(page, "bars") == before


def test_the_legend_hides_a_group(page: Any, site: Site) -> None:
    open_page(page)
    item = page.locator("[data-group=wasted]")
    item.click()
    until(page, "document.getElementById('bars').data[0].visible === false")
    assert item.get_attribute("aria-pressed") == "false"
    item.press("Enter")
    until(page, "document.getElementById('bars').data[0].visible === undefined")


def test_a_bar_opens_its_run_in_the_window_around(page: Any, site: Site) -> None:
    page.goto(TAB)
    frame = page.frame_locator("iframe")
    frame.locator(READY).wait_for()
    frame.locator("#bars .nsewdrag").click()
    page.wait_for_url("**/team-a/dags/ranker/runs/r2")


def test_a_link_leaves_the_frame(page: Any, site: Site) -> None:
    page.goto(TAB)
    frame = page.frame_locator("iframe")
    frame.locator(READY).wait_for()
    frame.get_by_role("link", name="r1").click()
    page.wait_for_url("**/team-a/dags/ranker/runs/r1")


def test_a_link_opens_another_tab_on_demand(page: Any, site: Site) -> None:
    page.goto(TAB)
    frame = page.frame_locator("iframe")
    frame.locator(READY).wait_for()
    with page.context.expect_page() as opened:
        frame.get_by_role("link", name="r1").click(modifiers=["Control"])
    opened.value.wait_for_url("**/team-a/dags/ranker/runs/r1")
    assert page.url.endswith(TAB)


def test_a_figure_that_fails_says_so_and_is_asked_for_again(page: Any, site: Site) -> None:
    site.status["figure"] = 503
    open_page(page)
    chart = page.locator("#line")
    assert "The chart could not be loaded. The ETT% store does not answer." in chart.inner_text()
    assert chart.get_attribute("role") == "group"
    site.status.clear()
    chart.get_by_role("button", name="Try again").click()
    chart.locator(".main-svg").first.wait_for()
    assert chart.get_attribute("role") == "img"
    assert page.locator("#bars .main-svg").count()


def test_a_slow_figure_says_that_it_is_coming(page: Any, site: Site) -> None:
    held: list[Any] = []
    page.route("**/figure*", lambda route: held.append(route))
    page.goto(OURS)
    page.get_by_text("Loading the chart…").wait_for()
    held[0].continue_()
    page.locator("#line .main-svg").first.wait_for()
    assert page.get_by_text("Loading the chart…").count() == 0


def test_without_the_chart_script_the_tables_stand(page: Any, site: Site) -> None:
    site.status["plotly"] = 404
    open_page(page)
    assert page.get_by_text("The chart needs JavaScript.").count() == 2
    assert page.get_by_role("link", name="r1").count() == 1


def test_without_javascript_the_tables_stand(chromium: Any, site: Site) -> None:
    context = chromium.new_context(base_url=site.base, java_script_enabled=False)
    page = context.new_page()
    page.goto(OURS)
    words = page.locator(".chart p")
    assert words.count() == 2
    assert words.first.is_visible()
    assert page.get_by_role("button", name="Show").count() == 1
    context.close()


def test_paper_is_light(page: Any, site: Site) -> None:
    page.emulate_media(color_scheme="dark")
    open_page(page)
    page.emulate_media(media="print")
    until(page, "!document.documentElement.classList.contains('dark')")
    assert page.locator("form.bar select").is_hidden()
