"""What changed between two sets of jobs: the parts are the whole, exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.plans.compare import PARTS, compare


def job(effective: int, /, saves: int = 0, **levels: int) -> dict[str, Any]:
    """A result with these levels; ``saves`` of ``steady`` are checkpoint_save."""
    levels = {
        "effective": effective,
        "start": 0,
        "recovery": 0,
        "steady": 0,
        "shutdown": 0,
        **levels,
    }
    steady = {"checkpoint_save": saves, "data_wait": levels["steady"] - saves}
    return {
        "ett_pct": 1.0,
        "wall_ns": sum(levels.values()),
        "effective_ns": effective,
        "levels_ns": levels,
        "positions_ns": {"steady": steady, "shutdown": {"checkpoint_save": levels["shutdown"]}},
    }


def test_the_published_shares_of_the_savings() -> None:
    # 58, 23, 11 and 8 percent: digests of arXiv 2610.02057, for recovery, shutdown, checkpoint,
    # start. The steady rest is the same before and after.
    before = job(7000, recovery=1580, shutdown=630, steady=510, saves=310, start=280)
    after = job(8000, recovery=1000, shutdown=400, steady=400, saves=200, start=200)
    found = compare([before], [after]).as_dict()
    assert (found["before"]["ett_pct"], found["after"]["ett_pct"]) == (70.0, 80.0)
    assert (found["change_points"], found["change_ppm"]) == (10.0, 100_000)
    assert list(found["parts"]) == ["recovery", "shutdown", "checkpoint", "start", "steady"]
    shares = [part["share_pct"] for part in found["parts"].values()]
    assert shares == [58.0, 23.0, 11.0, 8.0, 0.0]
    assert found["parts"]["checkpoint"] == {
        "lost_before_ppm": 31_000,
        "lost_after_ppm": 20_000,
        "gain_ppm": 11_000,
        "share_pct": 11.0,
    }


def test_a_part_that_got_worse_has_a_negative_share() -> None:
    gains = compare([job(50, recovery=50)], [job(75, recovery=5, start=20)]).parts
    shares = {gain.part: gain.share_pct for gain in gains}
    assert shares == {"recovery": 180, "shutdown": 0, "checkpoint": 0, "start": -80, "steady": 0}


def test_a_set_is_weighed_by_wall_clock_and_by_jobs_with_an_ett() -> None:
    uninstrumented = {**job(0, start=10**9), "ett_pct": None}
    mixed = [job(90, start=10), job(90, recovery=810), uninstrumented]
    found = compare(mixed, [job(18, start=82)])
    assert (found.before_jobs, found.before_ppm, found.after_ppm) == (2, 180_000, 180_000)
    assert {gain.part: gain.gain_ppm for gain in found.parts if gain.gain_ppm} == {
        "recovery": 810_000,
        "start": -810_000,
    }
    assert {gain.share_pct for gain in found.parts} == {None}


def test_saves_outside_of_the_steady_position_are_of_that_position() -> None:
    found = compare([job(80, shutdown=20)], [job(100)])
    assert {gain.part for gain in found.parts if gain.gain_ppm} == {"shutdown"}


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_set_without_an_ett_cannot_be_compared(side: str) -> None:
    sets = {"before": [job(1)], "after": [job(1)], side: [{**job(1), "ett_pct": None}]}
    with pytest.raises(ConfigurationError, match=f"{side}: no job with an ETT%"):
        compare(**sets)


LENGTH = st.integers(min_value=0, max_value=10**18)


@st.composite
def results(draw: st.DrawFn) -> dict[str, Any]:
    names = ("start", "recovery", "steady", "shutdown")
    levels = {name: draw(LENGTH) for name in names}
    saves = draw(st.integers(0, levels["steady"]))
    return job(draw(st.integers(1, 10**18)), saves=saves, **levels)


SET = st.lists(results(), min_size=1, max_size=4)


@given(SET, SET)
def test_the_parts_sum_to_the_change(before: list[Any], after: list[Any]) -> None:
    found = compare(before, after)
    assert sum(gain.gain_ppm for gain in found.parts) == found.change_ppm
    assert found.change_ppm == found.after_ppm - found.before_ppm
    assert [gain.part for gain in found.parts] == list(PARTS)
    for jobs, ppm in ((before, found.before_ppm), (after, found.after_ppm)):
        exact = Fraction(sum(j["effective_ns"] for j in jobs), sum(j["wall_ns"] for j in jobs))
        assert abs(exact * 1_000_000 - ppm) < 1
    assert sum(gain.lost_before_ppm for gain in found.parts) == 1_000_000 - found.before_ppm
    assert sum(gain.lost_after_ppm for gain in found.parts) == 1_000_000 - found.after_ppm
    if found.change_ppm:
        assert sum(gain.share_pct or 0 for gain in found.parts) == pytest.approx(100, abs=1e-6)


@given(SET)
def test_nothing_changes_between_a_set_and_itself(jobs: list[Any]) -> None:
    assert {gain.gain_ppm for gain in compare(jobs, jobs[::-1]).parts} == {0}
