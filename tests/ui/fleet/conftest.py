"""Sums over jobs made by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett.store.sums import Sums

S = 10**9
HOUR = 3_600 * S


def make_sums(*, jobs: int = 1, **changes: Any) -> Sums:
    """Sums over jobs of 10 h on 2 accelerators: 8 h effective, half an hour in the queue."""
    job: dict[str, Any] = {
        "accelerators": 2,
        "attempts": 2,
        "wall_ns": 10 * HOUR,
        "held_ns": 10 * HOUR - HOUR // 2,
        "effective_ns": 8 * HOUR,
        "ett_pct": 80.0,
        "tts_ns": 1000 * S,
        "ttr_ns": 0,
        "recoveries": 0,
        "components_ns": {"effective": 8 * HOUR, "scheduling": HOUR, "wasted": HOUR},
        "nof_by_cause": {"preempted": 1},
        "released_ns": HOUR // 4,
    }
    sums = Sums()
    for _ in range(jobs):
        sums.add_job(**job | changes)
    return sums


@pytest.fixture
def sums() -> Callable[..., Sums]:
    """Make sums over one job or ``jobs``; keywords replace the columns of each."""
    return make_sums


@pytest.fixture
def unmeasured() -> Sums:
    """Sums over one job without ETT%."""
    return make_sums(ett_pct=None, effective_ns=0, tts_ns=None, components_ns={})
