"""How often to save: the published figures, the edges, and what jobs have shown."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import Kind
from airflow_ett.metric.plans.interval import Costs, observe, plan

# Inputs and formula: the PyTorch blog of 17 April 2026, "Optimizing effective training time for
# Meta's internal recommendation/ranking workloads".
BLOG = Costs(blocking_s=15, failures=3)
CURVE = [
    (60, 90.0, 21600.0, 25.1042),
    (300, 450.0, 4320.0, 5.5208),
    (600, 900.0, 2160.0, 3.5417),
    (929.5, 1394.25, 1394.298, 3.2275),
    (1200, 1800.0, 1080.0, 3.3333),
    (1800, 2700.0, 720.0, 3.9583),
    (3600, 5400.0, 360.0, 6.6667),
    (7200, 10800.0, 180.0, 12.7083),
]
OPTIMUM = math.sqrt(2 * 15 * 86400 / 3)


@pytest.mark.parametrize(("interval", "unsaved", "blocking", "wtt"), CURVE)
def test_the_published_curve(interval: float, unsaved: float, blocking: float, wtt: float) -> None:
    point = BLOG.at(interval)
    assert point.unsaved_s == unsaved
    assert point.blocking_s == pytest.approx(blocking, abs=1e-3)
    assert point.wtt_pct == pytest.approx(wtt, abs=5e-5)


def test_the_published_optimum() -> None:
    found = plan(BLOG, current_s=300).as_dict()
    assert found["optimal_interval_s"] == pytest.approx(929.52, abs=5e-3)
    assert found["wtt_pct"] == pytest.approx(3.2275, abs=5e-5)
    shown = {point["interval_s"]: round(point["wtt_pct"], 4) for point in found["curve"]}
    assert shown.items() >= {(i, wtt) for i, _, _, wtt in CURVE if i != 929.5}
    assert found["optimal_interval_s"] in shown
    assert list(shown) == sorted(shown)
    assert found["current"]["wtt_pct"] == pytest.approx(5.5208, abs=5e-5)
    assert found["saving_s"] == pytest.approx((5.5208 - 3.2275) * 864, abs=0.1)


def test_bounds_hold_and_are_told() -> None:
    short, long = plan(BLOG, at_most_s=600), plan(BLOG, at_least_s=1800)
    assert (short.optimal_interval_s, round(short.wtt_pct, 4)) == (600, 3.5417)
    assert (long.optimal_interval_s, round(long.wtt_pct, 4)) == (1800, 3.9583)
    assert "929.5 s" in short.note
    assert max(point.interval_s for point in short.curve) == 600
    assert plan(BLOG, at_least_s=60, at_most_s=7200).optimal_interval_s == OPTIMUM


def test_without_a_failure_the_longest_interval_is_best() -> None:
    endless = plan(Costs(15, 0), current_s=1500)
    assert (endless.optimal_interval_s, endless.wtt_pct) == (None, 0.0)
    assert "no failure" in endless.note
    assert endless.saving_s == pytest.approx(864.0)
    bounded = plan(Costs(15, 0), at_most_s=3600)
    assert (bounded.optimal_interval_s, round(bounded.wtt_pct, 4)) == (3600, 0.4167)


def test_saves_that_cost_nothing_come_as_often_as_allowed() -> None:
    endless = plan(Costs(0, 3))
    assert (endless.optimal_interval_s, endless.wtt_pct) == (None, 0.0)
    assert "shortest" in endless.note
    bounded = plan(Costs(0, 3), at_least_s=60)
    assert (bounded.optimal_interval_s, round(bounded.wtt_pct, 4)) == (60, 0.1042)
    assert plan(Costs(0, 0)).wtt_pct == 0.0


AMOUNT = st.floats(min_value=0, max_value=1e6)
INTERVAL = st.floats(min_value=1e-3, max_value=1e7)


@given(AMOUNT, AMOUNT, INTERVAL, INTERVAL, INTERVAL)
def test_no_interval_within_the_bounds_is_cheaper(
    blocking: float, failures: float, first: float, second: float, other: float
) -> None:
    costs = Costs(blocking, failures)
    low, high = sorted((first, second))
    found = plan(costs, current_s=other, at_least_s=low, at_most_s=high)
    assert found.optimal_interval_s is not None
    assert low <= found.optimal_interval_s <= high
    tried = costs.at(min(max(other, low), high))
    assert found.wtt_pct <= tried.wtt_pct * (1 + 1e-9)
    json.dumps(found.as_dict(), allow_nan=False)


def test_what_jobs_have_shown(history) -> None:
    def save(begin: float, attempt: tuple[int, int, int], cursor: int) -> None:
        history.phase("checkpoint_save", begin, begin + 2, attempt)
        data = {"checkpoint": f"c/{cursor}", "cursor": cursor, "blocking_ns": 2_000_000_000}
        history.add(Kind.CHECKPOINT_SAVED, begin + 2, data, attempt=attempt, rank=0)

    one, two = (1, 0, 0), (2, 0, 0)
    history.open().submit(0).session(5, 8).phase("first_batch", 8, 10).train(10, 60, (0, 50))
    save(60, one, 50)
    history.steps(62, 100, (50, 88), steps=38).ended(102, "infrastructure")
    history.submit(105, 2, "relaunch").session(106, 107, two, hwm=88)
    history.add(Kind.RESUMED, 107, {"checkpoint": "c/50", "cursor": 50}, attempt=two, rank=0)
    history.steps(107, 145, (50, 88), two, steps=38).train(145, 190, (88, 133), two)
    save(190, two, 133)
    history.session_ended(192, attempt=two).ended(195, None, two).job_ended(195)
    job = history.measure().as_dict()

    seen = observe([job, job])
    # Twice: 133 s of training, 2 s of the save within it; the last save lies in the shutdown.
    assert seen.costs == Costs(blocking_s=2.0, failures=2, time_s=270.0)
    assert seen.current_s == 67.5
    assert plan(seen.costs).optimal_interval_s == pytest.approx(math.sqrt(2 * 2 * 135))


def test_jobs_that_never_saved_or_trained_show_nothing(history) -> None:
    history.open().submit(0).session(1, 2).train(2, 10, (0, 8)).session_ended(10)
    trained = history.ended(11, None).job_ended(11).measure().as_dict()
    with pytest.raises(ConfigurationError, match="no checkpoint was saved"):
        observe([trained])
    with pytest.raises(ConfigurationError, match="no job with an ETT%"):
        observe([{**trained, "ett_pct": None}])


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, 1e13])
def test_numbers_that_are_none(bad: float) -> None:
    for wrong in (lambda: Costs(bad, 3), lambda: Costs(15, bad), lambda: plan(BLOG, current_s=bad)):
        with pytest.raises(ConfigurationError, match="is not a number from"):
            wrong()


def test_bounds_that_leave_nothing() -> None:
    with pytest.raises(ConfigurationError, match="longer than the longest"):
        plan(BLOG, at_least_s=10, at_most_s=5)
    with pytest.raises(ConfigurationError, match="max: 0 is not"):
        plan(BLOG, at_most_s=0)
