"""The bars: shares, marks, labels; names as text; colours as tokens."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.charts import spark_segments
from airflow_ett.ui.clock import Clock, clock_of
from airflow_ett.ui.dag.figures import date_labels, run_bars
from airflow_ett.ui.data import COMPONENT_LABELS, jobs_of
from tests.ui.conftest import make_report

Make = Callable[..., dict[str, Any]]
DAY = 86_400 * 10**9
BEGIN = 1_796_000_000 * 10**9


UTC = Clock()


def _figure(rows: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    jobs = jobs_of(rows)
    return run_bars(jobs, [f"to/{job.run_id}" for job in jobs], UTC, **options)


def _bars(figure: dict[str, Any]) -> dict[str, Any]:
    return {trace["legendgroup"]: trace for trace in figure["data"] if trace["type"] == "bar"}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    else:
        yield key, value


def test_every_bar_sums_to_the_whole(report: Make, silent: Make) -> None:
    bars = _bars(_figure([report(job="a", run_id="x"), silent(job="b", run_id="y")]))
    assert list(bars) == list(COMPONENT_LABELS)
    for index in range(2):
        assert sum(trace["y"][index] for trace in bars.values()) == pytest.approx(100, abs=0.01)
    assert bars["effective"]["y"] == [84.0, 0.0]


def test_marks_name_failed_running_and_unknown(report: Make, silent: Make) -> None:
    figure = _figure(
        [
            report(job="a", run_id="ok", begin_ns=1),
            report(job="b", run_id="bad", begin_ns=2, state="failed", cause="out_of_memory"),
            report(job="c", run_id="live", begin_ns=3, state="running", frozen=False),
            silent(job="d", run_id="mute", begin_ns=4),
            silent(job="e", run_id="waits", begin_ns=5, state="running", frozen=False),
        ]
    )
    wall, failed, running, unknown = figure["data"][7:]
    assert failed["x"] == ["bad"]
    assert running["x"] == ["live", "waits"]
    assert unknown["x"] == ["mute"]
    assert figure["layout"]["meta"]["unknown"] == [3, 4]
    marks = failed["x"] + running["x"] + unknown["x"]
    assert len(marks) == len(set(marks))
    assert wall["customdata"][1].endswith(", failed: out of memory")
    assert wall["customdata"][2].endswith(", running, provisional")


def test_names_are_text_to_plotly(report: Make) -> None:
    hostile = '<a href="https://evil.example">x</a>'
    figure = _figure([report(run_id=hostile, state="failed", cause="<b>boo")])
    texts = [value for _, value in _leaves(figure) if isinstance(value, str)]
    shown = [text for text in texts if not text.startswith("to/")]
    assert not [text for text in shown if "evil.example" in text and "<" in text]
    assert not [text for text in texts if "boo" in text and "<" in text]


def test_colours_are_tokens(report: Make, silent: Make) -> None:
    figure = _figure([report(job="a"), silent(job="b", state="failed", run_id="y")])
    colours = [value for key, value in _leaves(figure) if key.endswith("color")]
    assert len(colours) > 10
    assert all(re.fullmatch(r"\$[a-z-]+", colour) for colour in colours)


@given(st.lists(st.integers(BEGIN, BEGIN + 90 * DAY), max_size=200).map(sorted))
def test_at_most_eight_dates_and_none_twice(times: list[int]) -> None:
    labels = date_labels(times, UTC)
    assert len(labels) <= 8
    assert len(set(labels.values())) == len(labels)
    assert bool(labels) == bool(times)


def test_dates_become_hours_within_a_day() -> None:
    noon = BEGIN // DAY * DAY + DAY // 2
    assert date_labels([noon, noon + DAY // 24], UTC) == {0: "12:00", 1: "13:00"}
    assert list(date_labels([noon, noon + DAY], UTC).values()) == ["Nov 30", "Dec 1"]


def test_dates_are_those_of_the_pages_clock() -> None:
    noon = BEGIN // DAY * DAY + DAY // 2
    tokyo = clock_of("Asia/Tokyo")
    assert list(date_labels([noon, noon + DAY], tokyo).values()) == ["Nov 30", "Dec 1"]
    evening = noon + 4 * DAY // 24
    assert list(date_labels([noon, evening], tokyo).values()) == ["Nov 30", "Dec 1"]
    assert list(date_labels([noon, evening], UTC).values()) == ["12:00", "16:00"]


def test_held_bars_are_of_held_time(report: Make) -> None:
    figure = _figure([report()], held=True)
    bars = _bars(figure)
    assert bars["effective"]["y"] == [87.5]
    assert sum(trace["y"][0] for trace in bars.values()) == pytest.approx(100, abs=0.01)
    wall = figure["data"][7]
    assert (wall["name"], wall["customdata"]) == ("Accelerators held", ["16 m 00 s"])


def test_a_bar_opens_its_own_run(report: Make) -> None:
    figure = _figure([report(job=f"{i}", run_id=f"r{i}", begin_ns=3 - i) for i in range(3)])
    assert figure["layout"]["xaxis"]["categoryarray"] == ["r2", "r1", "r0"]
    assert figure["layout"]["meta"]["links"] == ["to/r2", "to/r1", "to/r0"]


@given(st.lists(st.sampled_from(["a", "a (2)", "0", "b"]), min_size=1, max_size=9))
def test_bars_of_one_name_stay_apart(names: list[str]) -> None:
    rows = [make_report(job=f"{i}", run_id=name, begin_ns=i) for i, name in enumerate(names)]
    jobs = [replace(job, label=job.run_id) for job in jobs_of(rows)]
    figure = run_bars(jobs, names, UTC)
    shown = figure["layout"]["xaxis"]["categoryarray"]
    assert len(set(shown)) == len(names)
    assert all(one.startswith(name) for one, name in zip(shown, names, strict=True))
    # A number would be read as another category's name.
    assert {trace["x0"] for trace in figure["data"] if "x0" in trace} == {shown[0]}
    assert set(figure["layout"]["xaxis"]["tickvals"]) <= set(shown)


def test_a_figure_of_five_hundred_bars_is_small(report: Make) -> None:
    names = [f"scheduled__2026-11-29T02:00:{i:03}+00:00" for i in range(500)]
    rows = [report(job=name, run_id=name, begin_ns=BEGIN + i) for i, name in enumerate(names)]
    links = [f"../../dags/ranker/runs/{name}/plugin/ett-run" for name in names]
    figure = run_bars(jobs_of(rows), links, UTC)
    assert len(json.dumps(figure)) < 200_000
    assert len(figure["layout"]["xaxis"]["tickvals"]) <= 8


def test_a_job_without_any_time_has_an_empty_bar(report: Make) -> None:
    nothing = dict.fromkeys(COMPONENT_LABELS, 0)
    figure = _figure([report(wall_ns=0, effective_ns=0, components_ns=nothing, ett_pct=None)])
    assert [trace["y"] for trace in _bars(figure).values()] == [[0.0]] * 7


def test_sparkline_breaks_where_unknown() -> None:
    segments = spark_segments([1.0, None, 3.0, 2.0])
    assert [len(segment) for segment in segments] == [1, 2]
    assert segments[0][0] == (2.0, 18.0)
    assert segments[1][0][1] == 2.0
    assert spark_segments([None]) == []
    assert spark_segments([5.0]) == [[(2.0, 18.0)]]
    # A place that is left out is no gap.
    assert spark_segments([1.0, 3.0], places=[1, 3], count=5) == [[(27.0, 18.0), (77.0, 2.0)]]
