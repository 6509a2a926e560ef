"""How often to save: the formula, its bounds, the damping, and what is told of it."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.events import JobContext
from airflow_ett.metric.plans.interval import Costs, plan
from airflow_ett.trainer.autointerval import (
    FAILURES_PER_HOUR,
    FIRST_S,
    LEAST_S,
    LEAST_SAVES,
    MOST_S,
    AutoInterval,
    optimum,
)


@pytest.mark.parametrize("blocking_s", [0.0, 0.02, 0.2, 1.6, 30.0, 300.0])
@pytest.mark.parametrize("failures_per_hour", [0.0, 0.001, FAILURES_PER_HOUR, 1.0, 20.0])
def test_it_is_the_metrics_formula_within_the_bounds(
    blocking_s: float, failures_per_hour: float
) -> None:
    least = max(LEAST_S, LEAST_SAVES * blocking_s)
    costs = Costs(blocking_s, failures_per_hour, time_s=3600)
    wanted = plan(costs, at_least_s=least, at_most_s=max(MOST_S, least)).optimal_interval_s
    assert math.isclose(optimum(blocking_s, failures_per_hour), wanted or 0.0)


def test_the_figures_of_a_failure_a_day() -> None:
    assert optimum(0.16, FAILURES_PER_HOUR) == pytest.approx(166, abs=1)
    assert optimum(5.0, FAILURES_PER_HOUR) == pytest.approx(930, abs=1)
    assert optimum(0.001, FAILURES_PER_HOUR) == 30
    assert optimum(200.0, 10.0) == 4000  # no more than 5% of the time


def test_each_change_is_told_with_its_figures_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    interval = AutoInterval(None)
    assert interval.seconds == FIRST_S
    interval.learn(0.16)
    assert interval.seconds == pytest.approx(166, abs=1)
    (told,) = caplog.messages
    for figure in ("every 166 s", "blocks for 0.160 s", "1 failures a day", "nothing is known"):
        assert figure in told
    for blocking_s in (0.17, 0.15, 0.2, 0.16):
        interval.learn(blocking_s)
    assert interval.seconds == pytest.approx(166, abs=1)
    assert len(caplog.messages) == 1


def test_neither_the_first_save_nor_a_slow_one_moves_it_for_long() -> None:
    interval = AutoInterval(1 / 24)
    interval.learn(1.3)  # allocates the buffers
    slow = interval.seconds
    interval.learn(0.16)
    settled = interval.seconds
    assert settled < slow / 2
    interval.learn(9.0)
    interval.learn(0.16)
    assert interval.seconds == settled


def test_saves_that_stay_slower_do_move_it() -> None:
    interval = AutoInterval(1 / 24)
    for _ in range(5):
        interval.learn(0.16)
    for _ in range(3):
        interval.learn(1.6)
    assert interval.seconds == optimum(1.6, 1 / 24)


def test_the_launchers_rate_reaches_the_trainer(job: Any, caplog: pytest.LogCaptureFixture) -> None:
    context = replace(job.context, failures_per_hour=2.5)
    assert JobContext.decode(context.encode()) == context
    assert job.context.failures_per_hour is None
    caplog.set_level(logging.INFO)
    interval = AutoInterval(context.failures_per_hour)
    interval.learn(2.0)
    assert interval.seconds == pytest.approx(math.sqrt(2 * 2.0 * 3600 / 2.5))
    assert "60 failures a day are expected (by the launcher's history)" in caplog.text
