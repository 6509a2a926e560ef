"""The zooms lie where they should, and within the job."""

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett.ui.timeline.moments import moments

BEGIN = 1_796_000_000 * 10**9
Tell = Callable[..., Any]


def _seconds(result: Any) -> list[tuple[str, float, float]]:
    return [
        (one.title, (one.begin_ns - BEGIN) / 10**9, (one.end_ns - BEGIN) / 10**9)
        for one in moments(result)
    ]


def test_the_start_ends_with_the_first_new_step_and_a_recovery_with_the_next(story: Tell) -> None:
    whole, start, recovery = _seconds(story().measure().as_dict())
    assert whole == ("Whole job", -6.23, 930.05)
    # The margins of 25 s and 75 s end where the picture of the whole does.
    assert start == ("Start", -6.23, 225)
    # It fails at 400 s and passes its mark at 890 s, of which 290 s trained on new data.
    assert recovery == ("Recovery 1", 325, 675)


def test_a_users_restart_begins_where_it_was_asked_for(story: Tell) -> None:
    *_, (title, begin, _) = _seconds(story(cause="user_restart").measure().as_dict())
    assert (title, begin) == ("Recovery 1", 325)


def test_a_recovery_shows_the_cursors_that_it_repeats(story: Tell) -> None:
    result = story().measure().as_dict()
    whole, start, recovery = moments(result)
    assert (whole.low, whole.high) == (start.low, start.high) == (0, pytest.approx(6900))
    assert (recovery.low, recovery.high) == (1750, 3150)


def test_a_job_that_goes_on_from_another_is_not_drawn_from_zero(story: Tell) -> None:
    result = story().measure().as_dict()
    for row in result["attempts"]:
        row["cursor_from"] += 100_000
        row["cursor_to"] += 100_000
    assert (moments(result)[0].low, moments(result)[0].high) == (98_500, 106_900)


def test_a_job_that_never_trained_has_a_start_alone(story: Tell) -> None:
    told = story()
    told.events = [event for event in told.events if event.attempt is None][:1]
    told.submit(0, 1)
    titles = [title for title, *_ in _seconds(told.measure(now_ns=BEGIN + 10**12).as_dict())]
    assert titles == ["Whole job", "Start"]


@pytest.mark.parametrize("cut", range(5, 40, 3))
def test_all_lie_within_the_whole(story: Tell, cut: int) -> None:
    told = story()
    told.events = told.events[:cut]
    whole, *others = moments(told.measure().as_dict())
    for one in others:
        assert whole.begin_ns <= one.begin_ns <= one.end_ns <= whole.end_ns
        assert 0 <= one.low < one.high
