"""The fleet page's charts."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett.store.sums import Sums
from airflow_ett.ui.fleet import figures
from airflow_ett.ui.fleet.amounts import LOSSES
from airflow_ett.ui.fleet.causes import cause_rows

Make = Callable[..., Sums]
DAYS = ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04"]
HOSTILE = "</script><b>&$bg"


def _colors(value: Any, key: str = "") -> set[str]:
    """Return every colour of a figure."""
    if isinstance(value, dict):
        return {c for name, part in value.items() for c in _colors(part, name)}
    if isinstance(value, list):
        return {c for part in value for c in _colors(part, key)}
    return {value} if key.endswith(("color", "colors")) and isinstance(value, str) else set()


def test_the_trend_has_a_line_per_weighting_and_gaps(sums: Make, unmeasured: Sums) -> None:
    days = {DAYS[0]: sums(), DAYS[2]: unmeasured, DAYS[3]: sums()}
    figure = figures.trend(DAYS, days, held=False)
    weighted, per_job = figure["data"]
    for trace in (weighted, per_job):
        assert trace["x"] == DAYS
        assert trace["y"] == [pytest.approx(80), None, None, pytest.approx(80)]
        assert trace["marker"]["size"] == [5, 0, 0, 5]
    assert weighted["legendgroup"] != per_job["legendgroup"]
    assert figure["layout"]["yaxis"]["range"] == [75, 85]
    assert figure["layout"]["xaxis"]["range"] == ["2026-10-31T12:00:00", "2026-11-04T12:00:00"]


def test_days_that_follow_one_another_are_a_line(sums: Make) -> None:
    figure = figures.trend(DAYS, dict.fromkeys(DAYS[:2], sums()), held=False)
    assert figure["data"][0]["marker"]["size"] == [0, 0, 0, 0]


def test_over_the_time_held_the_mean_of_jobs_is_left_out(sums: Make) -> None:
    (only,) = figures.trend(DAYS, {DAYS[0]: sums()}, held=True)["data"]
    assert only["y"][0] == pytest.approx(100 * 8 / 9.5)


def test_the_trends_axis_stays_within_the_percents(sums: Make, unmeasured: Sums) -> None:
    perfect = sums(ett_pct=100.0, components_ns={"effective": 1000})
    assert figures.trend(DAYS, {DAYS[0]: perfect}, held=False)["layout"]["yaxis"]["range"][1] == 100
    nothing = figures.trend(DAYS, {DAYS[0]: unmeasured}, held=False)
    assert nothing["layout"]["yaxis"]["range"] == [0, 100]


def test_bars_are_the_losses_in_stack_order(sums: Make) -> None:
    figure = figures.lost_by_day(DAYS, {DAYS[1]: sums()}, accelerated=True)
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    assert [trace["legendgroup"] for trace in bars] == list(LOSSES)
    assert sum(trace["y"][1] for trace in bars) == pytest.approx(4)
    assert all(trace["y"][0] == 0 for trace in bars)
    assert "pattern" in bars[-1]["marker"]
    whole, held = figure["data"][-2:]
    assert (whole["customdata"][1], held["customdata"][1]) == ("4.0\u00a0h", "3.0\u00a0h")


def test_without_accelerators_bars_are_hours(sums: Make) -> None:
    figure = figures.lost_by_day(DAYS, {DAYS[1]: sums(accelerators=0)}, accelerated=False)
    assert sum(t["y"][1] for t in figure["data"] if t["type"] == "bar") == pytest.approx(2)
    assert figure["data"][-1]["customdata"][1] == "1\u00a0h\u00a030\u00a0m"


def test_failures_of_both_periods_stand_beside_each_other(sums: Make) -> None:
    now = sums(nof_by_cause={"launch": 1, "out_of_memory": 2})
    figure = figures.failures(cause_rows(now, sums()))
    first, second = figure["data"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["Out of memory", "Launch", "Preempted"]
    assert (first["x"], second["x"]) == ([100, 50, 0], [0, 0, 50])
    assert first["text"] == ["100.0", "50.0", "0.0"]
    assert len(figures.failures(cause_rows(now, Sums()))["data"]) == 1


def test_more_causes_than_there_is_room_for(sums: Make) -> None:
    many = {f"cause_{number:02}": number + 1 for number in range(30)}
    figure = figures.failures(cause_rows(sums(nof_by_cause=many), Sums()))
    assert len(figure["data"][0]["y"]) == 10
    assert figure["layout"]["yaxis"]["ticktext"][0] == "Cause 29"


def test_a_hostile_cause_is_text(sums: Make) -> None:
    figure = figures.failures(cause_rows(sums(nof_by_cause={HOSTILE: 1}), Sums()))
    text = json.dumps(figure)
    assert "<" not in text
    assert figure["layout"]["yaxis"]["ticktext"] == ["&lt;/script&gt;&lt;b&gt;&amp;$bg"]


def test_colours_are_tokens(sums: Make) -> None:
    days = {DAYS[0]: sums()}
    for figure in (
        figures.trend(DAYS, days, held=False),
        figures.lost_by_day(DAYS, days, accelerated=True),
        figures.failures(cause_rows(sums(), sums())),
    ):
        assert _colors(figure)
        assert all(color.startswith("$") for color in _colors(figure))
        json.dumps(figure, allow_nan=False)
