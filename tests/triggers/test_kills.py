"""A user ends or clears a deferred task: the training hears of it, and in time."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

import airflow_ett.triggers.training as module
from airflow_ett.errors import LaunchError
from airflow_ett.hooks.job import JobHold
from airflow_ett.triggers.pool import Pool
from tests.triggers.fakes import Blocking, FakeWatcher, first_event, killed, trigger_on, until

API_ERROR = AirflowRuntimeError(
    ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 502})
)


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        ("failed", ["user_cancel"]),
        ("success", ["user_cancel"]),
        ("restarting", ["user_restart"]),
        ("queued", ["user_restart"]),
        ("deferred", []),
        ("running", []),
    ],
)
def test_r05_r11_on_kill_acts_on_airflows_own_state(
    monkeypatch: Any, hold: dict[str, Any], state: str, asked: list[str]
) -> None:
    watcher = FakeWatcher()
    trigger = trigger_on(monkeypatch, hold, watcher, state)

    async def kill() -> None:
        task = asyncio.create_task(first_event(trigger))
        await asyncio.sleep(0.1)
        task.cancel()
        await trigger.on_kill()

    asyncio.run(kill())
    assert [word for word in watcher.asked if word != "poll"] == asked


def test_r05_a_kill_before_the_first_look_cancels_too(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    watcher = FakeWatcher()
    trigger = trigger_on(monkeypatch, hold, watcher, "failed")
    asyncio.run(trigger.on_kill())
    assert watcher.asked == ["user_cancel"]


def test_r05_a_cancel_that_fails_is_tried_again(monkeypatch: Any, hold: dict[str, Any]) -> None:
    class Refusing(FakeWatcher):
        def begin_user_cancel(self) -> None:
            super().begin_user_cancel()
            if len(self.asked) < 3:
                raise LaunchError("connection refused")

    monkeypatch.setattr(module, "_KILL_RETRY_S", 0.01)
    watcher = Refusing()
    trigger = trigger_on(monkeypatch, hold, watcher, "failed")
    trigger.poll_interval = 1000.0  # Airflow waits for half a minute
    asyncio.run(asyncio.wait_for(trigger.on_kill(), 5))
    assert watcher.asked == ["user_cancel"] * 3


@pytest.mark.parametrize("error", [API_ERROR, ConnectionResetError("gone")], ids=["api", "socket"])
def test_r05_an_airflow_that_does_not_answer_is_asked_again(
    monkeypatch: Any, hold: dict[str, Any], error: Exception
) -> None:
    answers: list[Any] = [error, error, "failed"]

    def state(_: Any) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(module, "_KILL_RETRY_S", 0.01)
    watcher = FakeWatcher()
    trigger = trigger_on(monkeypatch, hold, watcher)
    monkeypatch.setattr(module, "airflow_state", state)
    asyncio.run(asyncio.wait_for(trigger.on_kill(), 5))
    assert watcher.asked == ["user_cancel"]
    assert watcher.closed


def test_r05_a_kill_that_is_tried_again_asks_anew_what_it_means(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    """Meanwhile the next try may have begun, which has adopted the training."""

    class Refusing(FakeWatcher):
        def user_restart(self) -> None:
            super().user_restart()
            raise LaunchError("connection refused")

    states = ["restarting", "running"]
    monkeypatch.setattr(module, "_KILL_RETRY_S", 0.01)
    watcher = Refusing()
    trigger = trigger_on(monkeypatch, hold, watcher)
    monkeypatch.setattr(module, "airflow_state", lambda _: states.pop(0))
    asyncio.run(asyncio.wait_for(trigger.on_kill(), 5))
    assert watcher.asked == ["user_restart"]


def test_r05_a_job_whose_app_could_not_be_told_stays_open(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    """A relaunch hangs in its scheduler, and may yet begin: the reaper finds open jobs alone."""

    class Intended(FakeWatcher):
        def close_if_told(self, *_: Any) -> bool:
            return False

    watcher = Intended()
    trigger = trigger_on(monkeypatch, hold, watcher, "failed")
    warned: list[str] = []
    monkeypatch.setattr(trigger.log, "warning", lambda text, *_: warned.append(text))
    asyncio.run(asyncio.wait_for(trigger.on_kill(), 5))
    assert watcher.asked == ["user_cancel"]
    assert "could not be told" in "".join(warned)


def test_s13_a_kill_gets_through_while_all_looks_are_blocked(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "LOOKS", Pool("few", 2))
    slow, waiting = [Blocking(), Blocking()], FakeWatcher()

    async def scene() -> None:
        others = [trigger_on(monkeypatch, hold, watcher, "failed") for watcher in slow]
        for trigger, watcher in zip(others, slow, strict=True):
            monkeypatch.setattr(trigger, "_watching", lambda watcher=watcher: watcher)
        tasks = [asyncio.create_task(first_event(trigger)) for trigger in others]
        for watcher in slow:
            await until(watcher.looking)
        queued = trigger_on(monkeypatch, hold, waiting, "failed")
        task = asyncio.create_task(first_event(queued))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(killed(task, queued), 5)
        assert waiting.asked == ["user_cancel"]
        assert not any(watcher.answer.is_set() for watcher in slow)
        for other, watcher in zip(tasks, slow, strict=True):
            other.cancel()
            watcher.answer.set()

    asyncio.run(scene())
    # A look that was cancelled while it waited for a thread never came.
    assert waiting.asked == ["user_cancel"]


def test_s13_a_kill_follows_the_look_in_flight_which_is_cut_short(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    watcher = Blocking()

    async def scene() -> None:
        trigger = trigger_on(monkeypatch, hold, watcher, "failed")
        task = asyncio.create_task(first_event(trigger))
        await until(watcher.looking)
        kill = asyncio.create_task(killed(task, trigger))
        await asyncio.sleep(0.1)
        assert watcher.asked == ["poll"]
        watcher.answer.set()
        await asyncio.wait_for(kill, 5)

    asyncio.run(scene())
    assert watcher.asked == ["poll", "user_cancel"]


def test_s13_a_kill_goes_past_a_look_that_hangs_unless_another_owner_has_the_job(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    hanging, fresh, claims = Blocking(), FakeWatcher(), list[Any]()

    async def scene() -> None:
        trigger = trigger_on(monkeypatch, hold, hanging, "failed")
        task = asyncio.create_task(first_event(trigger))
        await until(hanging.looking)

        def take(_hold: JobHold, *_: Any, after: int | None) -> Any:
            claims.append(after)
            return fresh

        monkeypatch.setattr(JobHold, "take", take)
        monkeypatch.setattr(module, "_LOOK_WAIT_S", 0.1)
        await asyncio.wait_for(killed(task, trigger), 5)
        hanging.answer.set()

    asyncio.run(scene())
    assert claims == [hanging.epoch]
    assert hanging.asked == ["poll"]
    assert fresh.asked == ["user_cancel"]


def test_s13_all_trainings_are_told_to_end_before_any_is_waited_for(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    """A user ends a run of many trainings, and each takes its time to save."""
    told: list[int] = []

    class Saving(FakeWatcher):
        def begin_user_cancel(self) -> None:
            told.append(id(self))

        def user_cancel_over(self) -> bool:
            return len(told) == 20

    monkeypatch.setattr(module, "KILLS", Pool("few", 2))
    monkeypatch.setattr(module, "_KILL_LOOK_S", 0.01)
    watchers = [Saving() for _ in range(20)]
    triggers = [trigger_on(monkeypatch, hold, watcher, "failed") for watcher in watchers]
    for trigger, watcher in zip(triggers, watchers, strict=True):
        trigger._watcher = watcher  # type: ignore[assignment]

    async def scene() -> None:
        await asyncio.wait_for(asyncio.gather(*(t.on_kill() for t in triggers)), 5)

    asyncio.run(scene())
    assert len(set(told)) == 20
    assert all(watcher.closed for watcher in watchers)


def test_s13_a_kill_that_airflow_no_longer_waits_for_goes_out_all_the_same(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    pool, blocked, watcher = Pool("one", 1), threading.Event(), FakeWatcher()
    trigger = trigger_on(monkeypatch, hold, watcher, "failed")
    monkeypatch.setattr(module, "KILLS", pool)

    async def scene() -> None:
        kill = asyncio.create_task(trigger.on_kill())
        await asyncio.sleep(0.05)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(kill, 0.1)
        blocked.set()
        await asyncio.wrap_future(pool.submit(int))

    def state(_: Any) -> str:
        pool.submit(lambda: blocked.wait(10))  # somebody else's kill comes in between
        return "failed"

    monkeypatch.setattr(module, "airflow_state", state)
    asyncio.run(scene())
    assert watcher.asked == ["user_cancel"]
