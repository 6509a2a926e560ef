"""What became of the levers, by attempt."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.metric.result import Lever

S = 1_000_000_000
FIRST, SECOND = (1, 0, 0), (2, 0, 0)


@pytest.fixture
def told(history: Any) -> Any:
    """A history of two attempts; ``told(time, lever, outcome, …)`` tells of one lever."""
    history.open().submit(0).session(1, 2).steps(10, 20, (0, 8))
    history.submit(30, 2, "relaunch").session(31, 32, SECOND).steps(40, 50, (8, 16), SECOND)

    def tell(
        time: float, lever: Any, outcome: Any, attempt: Any = FIRST, rank: int = 0, **more: Any
    ) -> None:
        data = {"lever": lever, "outcome": outcome, **more}
        history.add("lever", time, data, attempt=attempt, rank=rank)

    return tell


def test_each_attempt_has_what_its_own_trainer_told(history: Any, told: Any) -> None:
    told(3, "compile_cache", "missed", reason="nothing is kept yet")
    told(11, "compile_cache", "saved", duration_ns=S // 2, bytes=2_300_000)
    told(33, "compile_cache", "used", SECOND, duration_ns=S // 5)
    first, second = history.measure(now=60).attempts
    assert first.levers == (
        Lever("compile_cache", "missed", "nothing is kept yet", None, None, 0),
        Lever("compile_cache", "saved", None, S // 2, 2_300_000, 0),
    )
    assert second.levers == (Lever("compile_cache", "used", None, S // 5, None, 0),)
    assert second.as_dict()["levers"] == [second.levers[0]._asdict()]


def test_of_many_saves_the_last_one_is_kept_and_the_miss_before_them(
    history: Any, told: Any
) -> None:
    told(3, "compile_cache", "missed", reason="another torch")
    for number in range(100):
        told(11 + number / 100, "compile_cache", "saved", bytes=number)
    missed, saved = history.measure(now=60).attempts[0].levers
    assert (missed.reason, saved.bytes) == ("another torch", 99)


def test_each_reason_is_kept_and_of_many_the_last_ones(history: Any, told: Any) -> None:
    for number in range(20):
        told(3 + number / 100, "warm_recovery", "used", reason=f"value {number}")
    told(4, "warm_recovery", "used", reason="value 15")
    told(5, "warm_recovery", "missed", reason="nothing was saved yet")
    reasons = [one.reason for one in history.measure(now=60).attempts[0].levers]
    kept = [f"value {number}" for number in (12, 13, 14, 16, 17, 18, 19, 15)]
    assert reasons == [*kept, "nothing was saved yet"]


def test_what_one_rank_alone_tells_stands_beside_the_others_word(history: Any, told: Any) -> None:
    told(3, "compile_cache", "used", rank=8, reason="saved 3 s ago")
    told(4, "compile_cache", "used", reason="saved 4 s ago")
    told(5, "compile_cache", "missed", rank=8, reason="nothing is kept for this CPU")
    used, missed = history.measure(now=60).attempts[0].levers
    assert (used.rank, missed.rank) == (0, 8)


@pytest.mark.parametrize(("lever", "outcome"), [(None, "used"), ("", "used"), ("warm", 7)])
def test_what_names_no_lever_or_no_outcome_is_left_out(
    history: Any, told: Any, lever: Any, outcome: Any
) -> None:
    told(3, lever, outcome)
    told(4, "autotune", "off", reason=7, duration_ns=-1, bytes="many")
    (only,) = history.measure(now=60).attempts[0].levers
    assert only == Lever("autotune", "off", None, None, None, 0)


def test_a_lever_is_a_trainers_word_and_changes_no_time(history: Any, told: Any) -> None:
    before = history.measure(now=60)
    told(2.5, "fast_batch", "unable", reason="no specification")
    after = history.measure(now=60)
    assert after.phases_ns == before.phases_ns
    assert [one.begin_ns for one in after.attempts] == [one.begin_ns for one in before.attempts]


def test_the_levers_of_others_are_bounded(history: Any, told: Any) -> None:
    for number in range(70):
        told(3 + number / 100, f"lever {number}", "used")
    told(5, "lever 0", "used", reason="again")
    first, _ = history.measure(now=60).attempts
    assert [lever.lever for lever in first.levers] == [f"lever {n}" for n in range(64)] + [
        "lever 0"
    ]
