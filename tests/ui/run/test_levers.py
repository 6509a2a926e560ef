"""The table of the levers."""

from typing import Any

import pytest

from airflow_ett.ui.run.levers import levers
from tests.ui.run.showing import words

_ROW = {"reason": None, "duration_ns": None, "bytes": None, "rank": 0}


def _told(lively: Any, *rows: dict[str, Any]) -> dict[str, Any]:
    first, *others = lively.result["attempts"]
    attempts = [first | {"levers": list(rows)}, *(row | {"levers": []} for row in others)]
    changed: dict[str, Any] = lively.result | {"attempts": attempts}
    return changed


def test_each_attempts_outcomes_stand_with_their_reasons(lively: Any) -> None:
    found = levers(lively.result, show_all=False)
    assert [(row.attempt, row.name, row.outcome[1], row.reason) for row in found.shown] == [
        (1, "Compile cache", "Missed", "nothing is kept yet"),
        (1, "Fast batch", "Off", "ETT_FAST_BATCH=0"),
        (1, "Compile cache", "Saved", ""),
        (2, "Compile cache", "Used", ""),
        (3, "Compile cache", "Unable", "/cache can be written by others (mode 0777)"),
    ]
    saved = found.shown[2]
    assert (saved.ns, words(saved.size)) == (900_000_000, "2.2 MiB")
    assert found.hint == "1 could not work; the training went on without"


@pytest.mark.parametrize(
    ("outcome", "chip"),
    [("used", ("ok", "Used")), ("unable", ("warn", "Unable")), ("of_old", ("none", "Of_old"))],
)
def test_an_outcome_is_a_chip(lively: Any, outcome: str, chip: tuple[str, str]) -> None:
    told = _told(lively, _ROW | {"lever": "warm_recovery", "outcome": outcome, "rank": 3})
    (row,) = levers(told, show_all=False).shown
    assert (row.outcome, row.name, row.rank) == (chip, "Warm recovery", 3)


def test_of_many_the_newest_are_shown(lively: Any) -> None:
    many = [_ROW | {"lever": f"lever {n}", "outcome": "used"} for n in range(30)]
    some = levers(_told(lively, *many), show_all=False)
    assert (len(some.shown), some.total, some.shown[-1].name) == (12, 30, "Lever 29")
    assert len(levers(_told(lively, *many), show_all=True).shown) == 30


def test_a_job_without_levers_has_none_to_show(wide: Any) -> None:
    assert levers(wide.result, show_all=False).total == 0
