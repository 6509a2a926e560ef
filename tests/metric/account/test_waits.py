"""Why an attempt waited, by its scheduler's own words."""

from typing import Any

from airflow_ett.events import AttemptId

S = 1_000_000_000


def told(history: Any, time: float, state: str, reason: str | None = None, restart: int = 0) -> Any:
    data = {"state": state, "raw": state, "restart": restart, "reason": reason}
    return history.add("scheduler_state", time, data, attempt=AttemptId(1, restart, 0))


def test_each_reason_has_the_time_for_which_it_was_the_newest_word(history: Any) -> None:
    history.open().submit(0)
    told(history, 1, "PENDING", "Priority")
    told(history, 4, "PENDING", "Resources")
    told(history, 6, "UNKNOWN")
    told(history, 9, "PENDING", "Priority")
    told(history, 10, "RUNNING")
    told(history, 30, "PENDING", "BeginTime", restart=1)
    first, second = history.measure(now=37).attempts
    assert first.waits == {"Priority": 4 * S, "Resources": 2 * S}
    assert second.waits == {"BeginTime": 7 * S}


def test_one_whose_scheduler_gives_no_reason_waits_for_none(history: Any) -> None:
    history.open().submit(0)
    told(history, 1, "PENDING")
    told(history, 5, "RUNNING")
    assert history.measure(now=6).attempts[0].waits == {}
