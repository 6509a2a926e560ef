"""The Dag tab: what a reader does with it."""

import sqlite3
from typing import Any

import pytest

from tests.ui.browser.views import ALONE, View, markup, once
from tests.ui.gallery.names import HOSTILE

pytestmark = [pytest.mark.airflow, pytest.mark.browser]


def _fill(frame: Any) -> str:
    bar = frame.locator("#bars .trace.bars >> nth=0 >> .point path >> nth=0")
    return str(bar.evaluate("e => getComputedStyle(e).fill"))


def test_there_is_one_bar_per_run_and_the_theme_colours_it(view: View) -> None:
    frame = view.open(ALONE["dag"])
    assert frame.locator("#bars .trace.bars").count() == 7
    assert frame.locator("#bars .trace.bars >> nth=0 >> .point").count() == 30
    light = _fill(frame)
    view.page.emulate_media(color_scheme="dark")
    frame.locator("html.dark").wait_for(state="attached")
    assert light == "rgb(92, 136, 197)"
    assert once(lambda: _fill(frame) == "rgb(113, 149, 219)", view.page)


def test_losses_only_takes_the_effective_bars_away(view: View) -> None:
    frame = view.open(ALONE["dag"])
    bars = frame.locator("#bars .trace.bars")
    frame.get_by_role("button", name="Losses only").click()
    assert once(lambda: bars.count() == 6, view.page)
    legend = frame.locator(".legend [data-group=effective]")
    assert legend.get_attribute("aria-pressed") == "false"
    legend.click()
    assert once(lambda: bars.count() == 7, view.page)
    whole = frame.get_by_role("button", name="Whole")
    assert whole.get_attribute("aria-pressed") == "true"


def test_500_runs_have_500_bars_and_a_table_that_ends(view: View) -> None:
    frame = view.open(ALONE["dag of 500 runs"])
    assert frame.locator("#bars .trace.bars >> nth=0 >> .point").count() == 500
    rows = frame.locator("table tbody tr")
    shown = rows.count()
    assert shown < 40
    frame.get_by_role("link", name="Show all").click()
    assert once(lambda: rows.count() > 500, view.page)


def test_an_untrained_dag_says_what_to_add(view: View) -> None:
    frame = view.open(ALONE["dag without a training"])
    frame.get_by_role("heading", name="No training measured yet").wait_for()
    assert frame.locator("ins").count() > 5


def test_a_hostile_run_id_is_only_text_when_a_bar_is_hovered(view: View) -> None:
    frame = view.open(ALONE["dag of hostile names"])
    assert frame.get_by_role("link", name=HOSTILE, exact=True).count() >= 1
    # Newest right; the first of the hostile runs is the newest.
    box = frame.locator("#bars .trace.bars >> nth=0 >> .point >> nth=-1").bounding_box()
    view.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = frame.locator("#bars .hoverlayer")
    hover.get_by_text(HOSTILE).wait_for()
    assert "Wall clock" in hover.text_content()
    assert markup(frame) == 0
    assert view.errors == []


def test_a_store_of_another_revision_names_the_way_out(view: View, gallery: Any) -> None:
    true = _set_revision(gallery, "0001")
    try:
        frame = view.open(ALONE["dag"])
        frame.get_by_role("heading", name="The ETT% store needs an upgrade").wait_for()
        assert "airflow-ett db upgrade" in frame.locator("main").inner_text()
    finally:
        _set_revision(gallery, true)
    frame.get_by_role("link", name="Try again").click()
    frame.locator("body[data-ready]").wait_for()


def _set_revision(gallery: Any, revision: str) -> str:
    """Let the store claim to be at another revision; return the one before."""
    with sqlite3.connect(gallery.url.removeprefix("sqlite:///")) as connection:
        (old,) = connection.execute("SELECT version_num FROM ett_alembic_version").fetchone()
        connection.execute("UPDATE ett_alembic_version SET version_num = ?", (revision,))
    return str(old)
