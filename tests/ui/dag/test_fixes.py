"""The best advice: what it says, where it leads, and what overlaps."""

from typing import Any

import pytest

from airflow_ett.metric import COMPONENTS
from airflow_ett.metric.plans.advice import Advice, Advised
from airflow_ett.ui.dag.fixes import fixes_of

LINKS = {"new": "to/new", "old": "to/old"}


def _advice(points: float, **changes: Any) -> Advice:
    told: dict[str, Any] = {
        "key": "publish",
        "title": "Publish elsewhere",
        "component": "shutdown",
        "points": points,
        "saved_ns": 5,
        "saved_accelerator_ns": 40,
        "evidence": "It took long.",
        "runs": ("new", "old"),
    }
    return Advice(**told | changes)


def _fixes(*points: float, together: float | None = None) -> Any:
    items = tuple(_advice(one) for one in points)
    return fixes_of(Advised(items, together), LINKS, COMPONENTS, accelerated=True)


def test_the_best_three_are_shown() -> None:
    assert [fix.points for fix in _fixes(4.0, 3.0, 2.0, 1.0).items] == [4.0, 3.0, 2.0]
    assert _fixes().items == []


def test_each_tells_whom_it_concerns_and_where_to_look() -> None:
    (fix,) = _fixes(1.0).items
    assert (fix.owner, fix.guide, fix.runs, fix.newest) == (
        *("publishing", "../guide#publish", 2, "to/new"),
    )
    owned = COMPONENTS.changed(owners={"shutdown": "night-shift"})
    (fix,) = fixes_of(Advised((_advice(1.0),), None), LINKS, owned, accelerated=True).items
    assert fix.owner == "night-shift"


def test_the_newest_run_is_the_first_that_is_known() -> None:
    advised = Advised((_advice(1.0, runs=("gone", "old")), _advice(1.0, runs=())), None)
    first, second = fixes_of(advised, LINKS, COMPONENTS, accelerated=True).items
    assert (first.newest, second.newest) == ("to/old", None)


@pytest.mark.parametrize(("accelerated", "saved"), [(True, 40), (False, 5)])
def test_what_is_saved_is_in_the_pages_unit(accelerated: bool, saved: int) -> None:
    advised = Advised((_advice(1.0),), None)
    (fix,) = fixes_of(advised, LINKS, COMPONENTS, accelerated=accelerated).items
    assert fix.saved == saved


@pytest.mark.parametrize(
    ("points", "together", "expected"),
    [
        ((3.0, 2.0, 1.0), 5.2, ("all three", 5.2)),
        ((3.0, 2.0), 4.0, ("both", 4.0)),
        ((3.0, 2.0), 5.0, None),
        ((3.0, 2.0), 5.3, None),
        ((3.0,), None, None),
        ((0.14, 0.14), 0.16, None),
    ],
)
def test_overlaps_are_told_where_they_can_be_seen(
    points: tuple[float, ...], together: float | None, expected: tuple[str, float] | None
) -> None:
    assert _fixes(*points, together=together).overlap == expected
