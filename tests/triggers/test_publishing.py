"""What a publishing task waits for in the triggerer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

import airflow_ett.triggers.publishing as module
from airflow_ett.errors import LaunchError, PublishError
from airflow_ett.triggers.publishing import AppTrigger, FollowTrigger

KEY = {"deployment": "d", "dag_id": "dag", "run_id": "run", "task_id": "t", "map_index": -1}
WAITING: dict[str, Any] = {"state": {"over": False}, "poll_interval": 0.01, "deadline_ns": None}


class App:
    """Answers from a script."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def result(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def first(trigger: Any) -> dict[str, Any]:
    async def run() -> TriggerEvent:
        async for event in trigger.run():
            return event  # type: ignore[no-any-return]
        raise AssertionError("no event")

    payload: dict[str, Any] = asyncio.run(asyncio.wait_for(run(), 20)).payload
    return payload


@pytest.mark.parametrize(
    "answers",
    [
        (None, {"version": "v"}),
        (LaunchError("it does not answer"), {"version": "v"}),
        (OSError("the run root is away for a moment"), {"version": "v"}),
        (None, PublishError("weights are NaN")),
    ],
)
def test_an_app_is_waited_for_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[Any, ...]
) -> None:
    app = App(*answers)
    monkeypatch.setattr(module, "_app", lambda key: app)
    event = first(AppTrigger(key=KEY, try_number=1, **WAITING))
    assert event == {"late": False, "state": {"over": False}}
    assert app.answers == []


def test_at_the_deadline_it_fires_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_app", lambda key: App(None))
    late = {**WAITING, "deadline_ns": 1}
    assert first(AppTrigger(key=KEY, try_number=1, **late))["late"]


@pytest.mark.parametrize("soonest_s", [0.0, 0.3])
def test_it_does_not_fire_before_the_task_is_deferred(
    monkeypatch: pytest.MonkeyPatch, soonest_s: float
) -> None:
    monkeypatch.setattr("airflow_ett.triggers.training.SOONEST_S", soonest_s)
    monkeypatch.setattr(module, "_app", lambda key: App({"version": "v"}))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    first(AppTrigger(key=KEY, try_number=1, **WAITING))
    assert slept[-1] == pytest.approx(soonest_s, abs=0.2)


@pytest.mark.parametrize(
    "trigger",
    [
        AppTrigger(key=KEY, try_number=2, **WAITING),
        FollowTrigger(key=KEY, since="/c/7", due_ns=5, **WAITING),
    ],
)
def test_it_is_rebuilt_from_what_is_stored_of_it(trigger: Any) -> None:
    path, kwargs = trigger.serialize()
    assert path == f"airflow_ett.triggers.publishing.{type(trigger).__name__}"
    assert type(trigger)(**kwargs).serialize() == (path, kwargs)
