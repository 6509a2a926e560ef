"""The headline numbers and the wall clock as one sum."""

from typing import Any

import pytest

from airflow_ett.ui.run.headline import headline, wall_clock
from tests.ui.run.showing import SECOND, UTC, stats, view_of


def test_the_headline_of_a_live_job(lively: Any) -> None:
    result = lively.result
    told = stats(view_of(lively))
    assert told["ETT%, from submission"][0] == f"{result['ett_pct']:.1f}%"
    assert "Last hour" in told["ETT%, from submission"][2]
    # The job is younger than a day, so its last day is the whole.
    assert "Last day" not in told["ETT%, from submission"][2]
    assert told["At risk"][1].startswith("13 accelerator-hours since the checkpoint of ")
    assert told["Time to start"][1] == "68.1% of it is compile"
    assert told["Time to recover"][1] == "3 failures, longest 42 m 00 s"
    held = result["held_ns"] * 32 / 3600 / SECOND
    assert told["Lost accelerator-hours"][1] == f"of {held:,.0f} held"


def test_the_headline_of_a_job_that_failed(broken: Any) -> None:
    told = stats(view_of(broken))
    # Two minutes behind the save of each attempt; what the second one lost was never regained.
    assert told["Unsaved"][1].endswith("accelerator-hours trained, then lost")
    assert told["Unsaved"][2].endswith("of it at the job's end")
    assert told["Time to recover"][-1] == "the last never recovered"


def test_without_accelerators_time_is_lost_not_hours(wide: Any) -> None:
    told = stats(view_of(wide, accelerators=0, utt_ns=90 * SECOND))
    assert told["Lost time"] == ("2 m 24 s", "of 22 m 00 s held")
    assert told["Unsaved"] == ("1 m 30 s", "trained, then lost")


def test_a_users_wish_is_no_failure(lively: Any) -> None:
    ttr = [one | {"cause": "user_restart"} for one in lively.result["ttr"]]
    told = stats(view_of(lively, ttr=ttr, nof=0))
    assert told["Time to recover"][1:3] == (
        "0 failures, longest 42 m 00 s",
        "3 of 3 after a user's wish",
    )


@pytest.mark.parametrize("name", ["lively", "hostile", "wide", "broken", "quiet"])
def test_the_wall_clock_is_one_sum(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name).result
    found = wall_clock(result)
    assert sum(part.ns for part in found.parts) == found.wall_ns == result["wall_ns"]
    assert sum(part.width for part in found.parts) == pytest.approx(100)
    assert found.excluded_ns == 0


def test_an_empty_job_has_a_sum_too(quiet: Any) -> None:
    result = quiet.result | {
        "levels_ns": dict.fromkeys(quiet.result["levels_ns"], 0),
        "wall_ns": 0,
        "excluded_ns": 60 * SECOND,
    }
    assert wall_clock(result).excluded_ns == 60 * SECOND
    assert headline(result, UTC)[0].value == "–"
