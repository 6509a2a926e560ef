"""The headline, and the change of ETT% as the sum of its components' gains."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.metric.format import change
from airflow_ett.store.sums import SPENT, Sums
from airflow_ett.ui.data import COMPONENT_LABELS
from airflow_ett.ui.fleet.amounts import added, ett
from airflow_ett.ui.fleet.headline import gains, numbers_of
from tests.ui.fleet.conftest import HOUR, S

Make = Callable[..., Sums]


def test_numbers_of_a_period(sums: Make, unmeasured: Sums) -> None:
    whole = added([sums(jobs=3), unmeasured])
    found = numbers_of(whole, held=False, accelerated=True)
    assert (found.jobs, found.unmeasured) == (4, 1)
    assert found.ett_pct == pytest.approx(80)
    assert found.other_pct == pytest.approx(100 * 8 / 9.5)
    assert found.per_job_pct == pytest.approx(80)
    assert (found.lost, found.held, found.not_held) == (9 * HOUR, 57 * HOUR, 3 * HOUR)
    assert found.failures == pytest.approx(50)
    assert found.unwished == 0
    assert found.tts_ns == 1000 * S
    other = numbers_of(whole, held=True, accelerated=True)
    assert (other.ett_pct, other.other_pct) == (found.other_pct, found.ett_pct)


def test_without_an_ett_the_loss_is_unknown(unmeasured: Sums) -> None:
    found = numbers_of(unmeasured, held=False, accelerated=False)
    assert (found.ett_pct, found.other_pct, found.per_job_pct) == (None, None, None)
    assert (found.lost, found.tts_ns) == (None, None)


def test_a_gain_is_a_component_that_took_less(sums: Make) -> None:
    parts = {"effective": 16 * HOUR, "scheduling": 1 * HOUR, "wasted": 3 * HOUR}
    before = sums(components_ns=parts, wall_ns=20 * HOUR)
    better = sums(components_ns={**parts, "effective": 18 * HOUR, "wasted": HOUR})
    assert gains(better, before) == [("wasted", 10.0)]
    assert gains(before, better) == [("wasted", -10.0)]
    assert gains(before, before) == []


def test_no_gain_is_told_of_the_unknown(sums: Make, unmeasured: Sums) -> None:
    assert gains(sums(), unmeasured) == []
    assert gains(unmeasured, sums()) == []


PARTS = st.fixed_dictionaries({name: st.integers(0, 10**15) for name in COMPONENT_LABELS})


@given(PARTS, PARTS)
def test_gains_add_up_to_the_change_as_it_is_shown(
    now: dict[str, int], before: dict[str, int]
) -> None:
    sums, earlier = _spent(now), _spent(before)
    first, second = ett(sums, held=False), ett(earlier, held=False)
    found = gains(sums, earlier)
    if first is None or second is None:
        assert found == []
        return
    whole = sum(points for _, points in found)
    assert change(whole) == change(first - second)
    assert all(points for _, points in found)


def _spent(parts: dict[str, int]) -> Sums:
    sums = Sums()
    for name, ns in parts.items():
        sums.numbers[SPENT[name]] = ns
    return sums
