"""What stands around the figure: zooms, legend, and why there is no figure."""

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.ui.clock import Clock
from airflow_ett.ui.pages import render
from airflow_ett.ui.timeline.view import TimelineView, timeline_of

Tell = Callable[..., Any]


def _section(view: TimelineView) -> str:
    return render("timeline/section.html", timeline=view)


def _view(story: Tell, **how: Any) -> TimelineView:
    return timeline_of(story().measure().as_dict(), Clock(), "job 1", **how)


def test_the_figure_is_asked_for_relative_to_the_page(story: Tell) -> None:
    view = _view(story)
    assert view.src.startswith("../timeline/ranker?job=job+1&as_of=")
    assert f'data-src="{html.escape(view.src)}"' in _section(view)
    assert (view.height, view.tall) == (476, False)


def test_presets_are_buttons_with_both_ranges(story: Tell) -> None:
    page = _section(_view(story))
    found = re.findall(
        r'data-range="([^"]+)" data-yrange="([^"]+)" aria-pressed="(\w+)">([^<]+)', page
    )
    assert [(title, pressed) for *_, pressed, title in found] == [
        ("Whole job", "true"),
        ("Start", "false"),
        ("Recovery 1", "false"),
    ]
    assert json.loads(html.unescape(found[2][0])) == [
        "2026-11-30 00:58:45.000",
        "2026-11-30 01:04:35.000",
    ]
    # In thousands, as the axis counts.
    assert json.loads(html.unescape(found[2][1])) == [1.75, 3.15]


def test_a_zoom_into_a_chart_that_scrolls_says_where_its_row_is(story: Tell) -> None:
    result = story().measure().as_dict()
    view = timeline_of(result, Clock(), "j")
    assert [one.top for one in view.presets] == [None, 45, 45]
    assert "data-top" not in _section(view)
    assert _section(replace(view, tall=True)).count('data-top="45"') == 2


def test_many_recoveries_are_a_choice(story: Tell) -> None:
    result = story().measure().as_dict()
    result["ttr"] = result["ttr"] * 5
    view = timeline_of(result, Clock(), "j")
    assert [one.title for one in view.presets] == ["Whole job", "Start"]
    assert len(view.recoveries) == 5
    page = _section(view)
    assert '<select aria-label="Zoom to a recovery" data-for="timeline">' in page
    assert "Recovery 5 of 5" in page


def test_the_legend_has_the_phases_that_are_there_by_component(story: Tell) -> None:
    view = _view(story, of={"mystery": "trainer_init"})
    assert [(group.title, group.phases) for group in view.groups] == [
        ("Scheduling", ("hardware_setup", "retry_wait")),
        ("Trainer init", ("first_batch", "trainer_init", "mystery")),
        ("PT2 compile", ("compile",)),
        ("Effective", ("train",)),
        (
            "Wasted",
            ("replay", "checkpoint_save", "failure_detection", "wasted.tokenise"),
        ),
    ]
    page = _section(view)
    for word in (
        "checkpoint committed",
        "checkpoint not committed",
        "failure",
        "in the background",
    ):
        assert word in page
    assert "--c:var(--ph-compile)" in page


def test_more_than_twelve_attempts_scroll(story: Tell) -> None:
    result = story().measure().as_dict()
    first, last = result["attempts"]
    result["attempts"] = [first | {"submission": number} for number in range(1, 13)] + [last]
    result["ttr"] = []
    view = timeline_of(result, Clock(), "j")
    assert view.tall
    assert '<div class="tall" role="region" tabindex="0"' in _section(view)


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (90, "The events were removed after 90 days; the tables keep the numbers."),
        (None, "The events were removed; the tables keep the numbers."),
    ],
)
def test_without_events_it_says_so(story: Tell, days: int | None, text: str) -> None:
    page = _section(_view(story, removed=True, keep_days=days))
    assert text in page
    assert "data-src" not in page
    assert "<button" not in page


def test_names_are_text(story: Tell) -> None:
    result = story().measure().as_dict()
    result["dag_id"] = '"><script>/../x'
    result["phases_ns"]["<script>"] = 1
    page = _section(timeline_of(result, Clock(), '"><script>'))
    assert "<script>" not in page
    assert "../timeline/%22%3E%3Cscript%3E%2F..%2Fx?job=%22%3E%3Cscript%3E" in page
