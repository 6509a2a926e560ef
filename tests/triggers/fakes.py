"""What stands in for a trigger's watcher, and what the triggerer does with a trigger."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import airflow_ett.triggers.training as module
from airflow_ett.events import Cause
from airflow_ett.hooks.job import JobHold
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.places import Places
from airflow_ett.triggers.training import TrainingTrigger

OUTCOME = Outcome("j", Cause.APPLICATION, "it broke", "local_detached://ett/a", 7, None)


class FakeWatcher:
    """Answers polls from a script; counts what was asked."""

    handle = "local_detached://ett/a"
    epoch = 1
    closed = False

    @property
    def pause_s(self) -> float:
        return 0.01

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def begin(self) -> str:
        return "adopt"

    def poll(self) -> Any:
        self.asked.append("poll")
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def read_log(self) -> str:
        return "line\n"

    def places(self) -> Places:
        return Places("/run", self.handle)

    def user_restart(self) -> None:
        self.asked.append("user_restart")

    def recall(self) -> None:
        pass

    def begin_user_cancel(self) -> None:
        self.asked.append("user_cancel")

    def user_cancel_over(self) -> bool:
        return True

    def close_if_told(self, *_: Any) -> bool:
        self.closed = True
        return True


class Blocking(FakeWatcher):
    """A watcher whose scheduler does not answer before a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.looking = threading.Event()
        self.answer = threading.Event()

    def poll(self) -> Any:
        super().poll()
        self.looking.set()
        assert self.answer.wait(10)

    def read_log(self) -> str:
        self.asked.append("read_log")
        return super().read_log()


async def until(happened: threading.Event) -> None:
    """Wait as an event loop does."""
    assert await asyncio.to_thread(happened.wait, 10)


async def killed(task: asyncio.Task[Any], trigger: TrainingTrigger) -> None:
    """Do as Airflow does when a user ends a deferred task."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await trigger.on_kill()


def trigger_on(
    monkeypatch: pytest.MonkeyPatch, hold: dict[str, Any], watcher: FakeWatcher, state: str = ""
) -> TrainingTrigger:
    monkeypatch.setattr(JobHold, "take", lambda self, *_, **__: watcher)
    monkeypatch.setattr(module, "airflow_state", lambda key: state)
    trigger = TrainingTrigger(hold, 0.01)
    monkeypatch.setattr(trigger, "_ingest", lambda **_: None)
    return trigger


async def first_event(trigger: TrainingTrigger) -> Any:
    async for event in trigger.run():
        return event
    return None
