"""Amounts are exact and say what was held."""

from collections.abc import Callable

import pytest

from airflow_ett.store.sums import Sums
from airflow_ett.ui.fleet.amounts import (
    LOSSES,
    added,
    ett,
    held_amount,
    losses,
    lost_amount,
    not_held,
    per_100_attempts,
    unwished,
)
from tests.ui.fleet.conftest import HOUR

Make = Callable[..., Sums]


@pytest.mark.parametrize(("accelerated", "weight"), [(True, 2), (False, 1)])
def test_losses_are_what_was_lost_while_held_and_what_was_not_held(
    sums: Make, accelerated: bool, weight: int
) -> None:
    found = sums(jobs=3)
    parts = losses(found, accelerated=accelerated)
    assert tuple(parts) == LOSSES
    assert parts["scheduling"] == parts["wasted"] == 3 * weight * HOUR
    assert held_amount(found, accelerated=accelerated) == 3 * weight * 19 * HOUR // 2
    assert lost_amount(found, accelerated=accelerated) == 3 * weight * 3 * HOUR // 2
    assert not_held(found, accelerated=accelerated) == 3 * weight * HOUR // 2
    assert sum(parts.values()) == 3 * weight * 2 * HOUR


def test_parts_of_a_millisecond_are_not_less_than_nothing(sums: Make) -> None:
    odd = {"effective": 500_001, "wasted": 499_999, "scheduling": 0}
    found = sums(
        accelerators=1, wall_ns=10**6, held_ns=10**6, effective_ns=500_001, components_ns=odd
    )
    assert lost_amount(found, accelerated=True) == 10**6
    assert not_held(found, accelerated=True) == 0


def test_ett_follows_the_clock(sums: Make, unmeasured: Sums) -> None:
    assert ett(sums(), held=False) == pytest.approx(80)
    assert ett(sums(), held=True) == pytest.approx(100 * 8 / 9.5)
    assert ett(unmeasured, held=False) is None
    assert ett(unmeasured, held=True) is None


def test_rates(sums: Make, unmeasured: Sums) -> None:
    whole = added([sums(jobs=2, nof_by_cause={"preempted": 1, "launch": 2}), unmeasured])
    assert whole["jobs"] == 3
    assert unwished(whole) == 4
    assert per_100_attempts(unwished(whole), whole["attempts"]) == pytest.approx(100 * 4 / 6)
    assert per_100_attempts(0, 0) is None
