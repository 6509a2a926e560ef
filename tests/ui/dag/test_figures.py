"""The bars: shares, marks, labels; names as text; colours as tokens."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.charts import spark_segments
from airflow_ett.ui.dag.figures import date_labels, run_bars
from airflow_ett.ui.data import COMPONENT_LABELS, jobs_of

Make = Callable[..., dict[str, Any]]
DAY = 86_400 * 10**9
BEGIN = 1_796_000_000 * 10**9


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
    jobs = jobs_of([report(job="a", run_id="x"), silent(job="b", run_id="y")])
    bars = _bars(run_bars(jobs))
    assert list(bars) == list(COMPONENT_LABELS)
    for index in range(2):
        assert sum(trace["y"][index] for trace in bars.values()) == pytest.approx(100)
    assert bars["effective"]["y"] == [84.0, 0.0]


def test_marks_name_failed_running_and_unknown(report: Make, silent: Make) -> None:
    jobs = jobs_of(
        [
            report(job="a", run_id="ok", begin_ns=1),
            report(job="b", run_id="bad", begin_ns=2, state="failed", cause="out_of_memory"),
            report(job="c", run_id="live", begin_ns=3, state="running", frozen=False),
            silent(job="d", run_id="mute", begin_ns=4),
        ]
    )
    figure = run_bars(jobs)
    wall, failed, running, unknown = figure["data"][7:]
    assert failed["x"] == ["bad"]
    assert running["x"] == ["live"]
    assert unknown["x"] == ["mute"]
    assert figure["layout"]["meta"]["unknown"] == [3]
    assert wall["customdata"][1].endswith(", failed: out of memory")
    assert wall["customdata"][2].endswith(", running, provisional")


def test_names_are_text_to_plotly(report: Make) -> None:
    hostile = '<a href="https://evil.example">x</a>'
    figure = run_bars(jobs_of([report(run_id=hostile, state="failed", cause="<b>boo")]))
    texts = [value for _, value in _leaves(figure) if isinstance(value, str)]
    assert not [text for text in texts if "evil.example" in text and "<" in text]
    assert not [text for text in texts if "boo" in text and "<" in text]


def test_colours_are_tokens(report: Make, silent: Make) -> None:
    figure = run_bars(jobs_of([report(job="a"), silent(job="b", state="failed", run_id="y")]))
    colours = [value for key, value in _leaves(figure) if key.endswith("color")]
    assert len(colours) > 10
    assert all(re.fullmatch(r"\$[a-z-]+", colour) for colour in colours)


@given(st.lists(st.integers(BEGIN, BEGIN + 90 * DAY), max_size=200).map(sorted))
def test_at_most_eight_dates_and_none_twice(times: list[int]) -> None:
    labels = date_labels(times)
    assert len(labels) <= 8
    assert len(set(labels.values())) == len(labels)
    assert bool(labels) == bool(times)


def test_dates_become_hours_within_a_day() -> None:
    noon = BEGIN // DAY * DAY + DAY // 2
    assert date_labels([noon, noon + DAY // 24]) == {0: "12:00", 1: "13:00"}
    assert list(date_labels([noon, noon + DAY]).values()) == ["Nov 30", "Dec 1"]


def test_sparkline_breaks_where_unknown() -> None:
    segments = spark_segments([1.0, None, 3.0, 2.0])
    assert [len(segment) for segment in segments] == [1, 2]
    assert segments[0][0] == (2.0, 18.0)
    assert segments[1][0][1] == 2.0
    assert spark_segments([None]) == []
    assert spark_segments([5.0]) == [[(2.0, 18.0)]]
