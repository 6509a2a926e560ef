"""Sparklines of many jobs keep what can be seen of them."""

from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.dag.components import thinned

VALUES = st.lists(st.none() | st.floats(0, 100), max_size=700)


@given(VALUES)
def test_a_thinned_line_keeps_its_extremes(values: list[float | None]) -> None:
    shown = thinned(values)
    known = [value for value in values if value is not None]
    kept = [value for value in shown if value is not None]
    assert len(shown) <= 52
    assert bool(kept) == bool(known)
    if known:
        assert (min(kept), max(kept)) == (min(known), max(known))


def test_a_few_values_stay_as_they_are() -> None:
    assert thinned([1.0, None, 3.0]) == [1.0, None, 3.0]
    assert thinned([]) == []


def test_what_is_kept_stays_in_order_and_a_gap_a_gap() -> None:
    values: list[float | None] = [5.0, 9.0, 1.0, 2.0, None, None, None, None]
    assert thinned(values, 4) == [9.0, 1.0, None]
