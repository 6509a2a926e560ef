"""Failures by cause, in words."""

from collections.abc import Callable

import pytest

from airflow_ett.store.sums import Sums
from airflow_ett.ui.fleet.causes import cause_rows

Make = Callable[..., Sums]


def test_causes_of_both_periods_those_with_most_failures_first(sums: Make) -> None:
    now = sums(jobs=2, nof_by_cause={"out_of_memory": 2, "launch": 1})
    before = sums(nof_by_cause={"launch": 1, "vanished": 4})
    rows = cause_rows(now, before)
    assert [row.label for row in rows] == ["Out of memory", "Launch", "Vanished"]
    assert [row.count for row in rows] == [4, 2, 0]
    assert [row.now for row in rows] == pytest.approx([100, 50, 0])
    assert [row.before for row in rows] == pytest.approx([0, 50, 200])


def test_without_an_attempt_before_the_rate_is_unknown(sums: Make) -> None:
    (row,) = cause_rows(sums(), Sums())
    assert row.before is None
