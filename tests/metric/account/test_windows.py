"""The sliding windows beside the whole, and an interval that one of them cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric import measure
from airflow_ett.metric.result import Window

HOUR = 3600
Hours = Callable[..., Window]


@pytest.fixture(scope="module")
def last_hour(new_history: Any) -> Hours:
    """The last hour of a training of 100 minutes; its one long interval is given."""

    def measured(
        wait: float = 0,
        other: float = 0,
        cursors: tuple[int, int] = (1, 100),
        steps: int = 99,
        exclude: tuple[tuple[int, int], ...] = (),
    ) -> Window:
        history = new_history().open().submit(0).session(0, 0)
        history.steps(0, 1000, (0, 1))
        history.steps(1000, 5000, cursors, steps=steps, wait=wait, other=other)
        history.steps(5000, 6000, (cursors[1], cursors[1] + 1))
        stretches = [(begin * 10**9, end * 10**9) for begin, end in exclude]
        return measure(history.events, exclude=stretches).windows["1h"]

    return measured


def seconds(window: Window) -> dict[str, float]:
    return {name: ns / 1e9 for name, ns in window.components_ns.items() if ns}


def test_a_short_job_lies_in_both_windows(history) -> None:
    history.open().submit(0).session(2, 4).train(10, 110, (0, 10))
    metric = history.measure()
    for window in metric.windows.values():
        assert (window.begin_ns, window.end_ns) == (metric.begin_ns, metric.end_ns)
        assert (window.wall_ns, window.effective_ns) == (metric.wall_ns, metric.effective_ns)
        assert window.components_ns == metric.components_ns
        assert window.ett_pct == metric.ett_pct
        assert window.split is False


def test_a_long_job_has_a_last_hour_and_a_last_day(history) -> None:
    history.open().submit(0).session(0, 0)
    for hour in range(30):
        history.steps(hour * HOUR, (hour + 1) * HOUR, (hour, hour + 1), other=36 * (29 - hour))
    metric = history.measure()
    hour, day = metric.windows["1h"], metric.windows["24h"]
    assert [metric.end_ns - one.begin_ns for one in (hour, day)] == [
        HOUR * 10**9,
        24 * HOUR * 10**9,
    ]
    assert (hour.ett_pct, hour.split, day.split) == (100, False, False)
    assert day.ett_pct == pytest.approx(100 - sum(range(24)) / 24)
    assert metric.ett_pct == pytest.approx(100 - sum(range(30)) / 30)


def test_an_interval_of_many_steps_is_cut_pro_rata(last_hour) -> None:
    """It reaches from 1000 to 5000 s, the last hour from 2400 to 6000 s: 65% of it."""
    window = last_hour(wait=400, other=600)
    assert window.split is True
    assert seconds(window) == {"effective": 1000 + 0.65 * 3000, "wasted": 0.65 * 1000}
    assert window.wall_ns == HOUR * 10**9


def test_one_step_is_no_matter_of_share(last_hour) -> None:
    """Of one step it is known where its parts lie: 400 s of waiting come first."""
    window = last_hour(wait=2000, cursors=(1, 2), steps=1)
    assert window.split is False
    assert seconds(window) == {"effective": 3000, "wasted": 600}


def test_maintenance_in_the_interval_is_shared_too(last_hour) -> None:
    """Of its 4000 s 1400 lie before the window and 500 are maintenance: 52.5% are left."""
    window = last_hour(wait=400, other=600, exclude=((4500, 5000),))
    assert window.split is True
    assert seconds(window) == {"effective": 1000 + 0.525 * 3000, "wasted": 0.525 * 1000}
    beside = last_hour(wait=400, other=600, exclude=((5000, 5500), (0, 1000)))
    assert beside.split is True
    assert seconds(beside) == {"effective": 500 + 0.65 * 3000, "wasted": 0.65 * 1000}


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2000), st.integers(0, 1999), st.integers(1, 99), st.integers(1, 99))
def test_shares_sum_to_what_is_shared(last_hour, wait, other, low, steps) -> None:
    window = last_hour(wait=wait, other=other, cursors=(low, 100), steps=steps)
    assert window.wall_ns == HOUR * 10**9 == sum(window.components_ns.values())
    assert window.split is (steps > 1 and wait + other > 0)
    if steps > 1:
        train = 4000 - wait - other
        assert abs(window.effective_ns - (1000 + 0.65 * train) * 1e9) <= 3
