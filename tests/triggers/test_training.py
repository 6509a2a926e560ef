"""The trigger: plain data, cancels for nobody but a user, never swallows a cancellation."""

from __future__ import annotations

import ast
import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import airflow_ett.triggers.training as module
from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import JobKey
from airflow_ett.hooks.job import JobHold
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage
from airflow_ett.triggers.training import TrainingTrigger
from tests.triggers.fakes import OUTCOME, FakeWatcher, first_event, trigger_on


def test_r19_everything_that_is_serialised_is_plain_json(hold: dict[str, Any]) -> None:
    path, kwargs = TrainingTrigger(hold, 1.5).serialize()
    assert path == "airflow_ett.triggers.training.TrainingTrigger"
    again = TrainingTrigger(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (path, kwargs)
    assert json.loads(json.dumps(OUTCOME.as_dict()))["cause"] == "application"


def test_it_fires_the_outcome(monkeypatch: Any, hold: dict[str, Any]) -> None:
    trigger = trigger_on(monkeypatch, hold, FakeWatcher(None, None, OUTCOME))
    event = asyncio.run(first_event(trigger))
    assert event.payload["cause"] == "application"


def test_a_log_that_is_away_does_not_end_the_watch(monkeypatch: Any, hold: dict[str, Any]) -> None:
    watcher = FakeWatcher(JobLogError("stale"), JobLogError("stale"), OUTCOME)
    event = asyncio.run(first_event(trigger_on(monkeypatch, hold, watcher)))
    assert event.payload["message"] == "it broke"


def test_a_superseded_trigger_fires_nothing(monkeypatch: Any, hold: dict[str, Any]) -> None:
    trigger = trigger_on(monkeypatch, hold, FakeWatcher(Fenced("newer")))

    async def watch() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(first_event(trigger), 0.3)

    asyncio.run(watch())


def test_r10_s05_a_plain_cancellation_cancels_no_training(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    watcher = FakeWatcher()
    trigger = trigger_on(monkeypatch, hold, watcher)

    async def watch() -> None:
        task = asyncio.create_task(first_event(trigger))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await trigger.cleanup()

    asyncio.run(watch())
    assert set(watcher.asked) == {"poll"}


def test_a_log_that_is_away_at_the_start_is_waited_for(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    watcher = FakeWatcher(OUTCOME)
    trigger = trigger_on(monkeypatch, hold, watcher)
    answers: list[Any] = [JobLogError("stale"), JobLogError("stale"), watcher]

    def take(_hold: JobHold, *_: Any, **__: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(JobHold, "take", take)
    assert asyncio.run(first_event(trigger)).payload["cause"] == "application"


def test_a_hold_that_cannot_be_read_costs_no_training(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    """Its task would fail, and in its last try end a training that is healthy."""
    watcher = FakeWatcher(OUTCOME)
    trigger = trigger_on(monkeypatch, {**hold, "request": None}, watcher)

    async def watch() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(first_event(trigger), 0.3)

    asyncio.run(watch())
    assert watcher.asked == []


@pytest.mark.parametrize(
    ("state", "submits"), [("failed", False), ("deferred", True), (None, True)]
)
def test_r05_a_trigger_that_starts_again_submits_nothing_for_a_task_that_a_user_ended(
    monkeypatch: Any, hold: dict[str, Any], state: str | None, submits: bool
) -> None:
    """Airflow tells it to end only after it has started; ``None``: Airflow does not answer."""

    def ask(_: Any) -> str:
        if state is None:
            raise ConnectionResetError("gone")
        return state

    log = StorageLog(FolderStorage(Path(hold["run_dir"])), JobKey(**hold["key"]))
    log.claim(try_number=1, max_tries=2, mode="task")
    watcher = FakeWatcher(*[None] * 3, OUTCOME)
    trigger = trigger_on(monkeypatch, hold, watcher)
    monkeypatch.setattr(module, "airflow_state", ask)

    async def watch() -> None:
        await asyncio.wait_for(first_event(trigger), 5 if submits else 0.3)

    if submits:
        asyncio.run(watch())
    else:
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(watch())
    assert bool(watcher.asked) is submits


def test_s13_a_slow_scheduler_does_not_stall_the_loop(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    release = threading.Event()

    class Slow(FakeWatcher):
        def poll(self) -> Any:
            release.wait(5)
            return OUTCOME

    triggers = [trigger_on(monkeypatch, hold, Slow()) for _ in range(10)]

    async def watch() -> float:
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(first_event(trigger)) for trigger in triggers]
        worst = 0.0
        for _ in range(20):
            before = loop.time()
            await asyncio.sleep(0.01)
            worst = max(worst, loop.time() - before)
        release.set()
        await asyncio.gather(*tasks)
        return worst

    assert asyncio.run(watch()) < 0.2


def test_s13_the_pause_is_worked_out_beside_the_loop(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    class Pausing(FakeWatcher):
        @property
        def pause_s(self) -> float:
            self.asked.append(threading.current_thread().name)
            return 0.01

    watcher = Pausing(None, None, OUTCOME)
    trigger = trigger_on(monkeypatch, hold, watcher)
    asyncio.run(first_event(trigger))
    threads = [name for name in watcher.asked if name != "poll"]
    assert len(threads) == 2
    assert threading.main_thread().name not in threads


def test_s05_no_handler_swallows_a_cancellation() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
        assert handler.type is not None, "a bare except catches CancelledError"
        assert "CancelledError" not in ast.unparse(handler.type)
        assert "BaseException" not in ast.unparse(handler.type)
