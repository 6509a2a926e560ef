"""A deferred try's deadline holds whatever hangs; without one nothing is given up."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import airflow_ett.triggers.training as module
from airflow_ett.errors import JobLogError
from airflow_ett.triggers.pool import Pool
from tests.triggers.fakes import OUTCOME, Blocking, FakeWatcher, first_event, trigger_on, until


def due(hold: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the hold of a try that is to be over so many seconds from now."""
    deadline_ns = time.time_ns() + int(seconds * 1e9)
    return {**hold, "limits": {**hold["limits"], "deadline_ns": deadline_ns}}


class Away(FakeWatcher):
    """A watcher whose job's log is away."""

    def poll(self) -> Any:
        super().poll()
        raise JobLogError("the log is away")


def test_a_log_that_is_away_beyond_the_deadline_leaves_the_job_to_its_task(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "_AWAY_S", 0.2)
    trigger = trigger_on(monkeypatch, due(hold, 0.2), Away())
    begun = time.monotonic()
    event = asyncio.run(asyncio.wait_for(first_event(trigger), 10))
    assert time.monotonic() - begun >= 0.4
    assert event.payload["cause"] == "timeout"
    assert "execution_timeout" in event.payload["message"]
    assert "the log is away" in event.payload["message"]


def test_s13_a_look_that_hangs_beyond_the_deadline_is_not_waited_for(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "_OVERDUE_S", 0.2)
    watcher = Blocking()
    trigger = trigger_on(monkeypatch, due(hold, 0.1), watcher)

    async def scene() -> Any:
        event = await asyncio.wait_for(first_event(trigger), 10)
        assert watcher.asked == ["poll"]  # none beside the one that hangs
        watcher.answer.set()
        return event

    assert asyncio.run(scene()).payload["cause"] == "timeout"


def test_s13_a_training_is_looked_at_at_its_deadline_where_others_looks_hang(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "LOOKS", Pool("few", 1))
    hanging, healthy = Blocking(), FakeWatcher(OUTCOME)

    async def scene() -> Any:
        other = trigger_on(monkeypatch, hold, hanging)
        task = asyncio.create_task(first_event(other))
        await until(hanging.looking)
        trigger = trigger_on(monkeypatch, due(hold, 0.2), healthy)
        event = await asyncio.wait_for(first_event(trigger), 10)
        task.cancel()
        hanging.answer.set()
        return event

    assert asyncio.run(scene()).payload["cause"] == "application"
    assert healthy.asked == ["poll"]


def test_a_long_poll_interval_does_not_outlast_the_deadline(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    monkeypatch.setattr(FakeWatcher, "pause_s", 1000.0)
    trigger = trigger_on(monkeypatch, due(hold, 0.1), FakeWatcher(None, OUTCOME))
    monkeypatch.setattr(module, "_AWAY_S", 0.2)
    event = asyncio.run(asyncio.wait_for(first_event(trigger), 10))
    assert event.payload["cause"] == "application"


@pytest.mark.parametrize("watcher", [Away, Blocking])
def test_without_a_deadline_nothing_is_given_up(
    monkeypatch: Any, hold: dict[str, Any], watcher: type[FakeWatcher]
) -> None:
    for name in ("_AWAY_S", "_OVERDUE_S"):
        monkeypatch.setattr(module, name, 0.0)
    stuck = watcher()
    trigger = trigger_on(monkeypatch, hold, stuck)

    async def scene() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(first_event(trigger), 0.3)
        if isinstance(stuck, Blocking):
            stuck.answer.set()

    asyncio.run(scene())
