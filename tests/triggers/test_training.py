"""The trigger: plain data, cancels for nobody but a user, never swallows a cancellation."""

from __future__ import annotations

import ast
import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import airflow_ett.triggers.training as module
from airflow_ett.errors import Fenced, JobLogError, LaunchError
from airflow_ett.events import Cause
from airflow_ett.hooks.job import JobHold
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.places import Places
from airflow_ett.launch.request import Request
from airflow_ett.triggers.training import TrainingTrigger

OUTCOME = Outcome("j", Cause.APPLICATION, "it broke", "local_detached://ett/a", 7, None)


class FakeWatcher:
    """Answers polls from a script; counts what was asked."""

    handle = "local_detached://ett/a"

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

    def user_cancel(self, wait_s: float) -> None:
        self.asked.append("user_cancel")


@pytest.fixture
def hold(tmp_path: Path) -> dict[str, Any]:
    key = {
        "deployment": "d",
        "dag_id": "dag",
        "run_id": "run",
        "task_id": "train",
        "map_index": -1,
        "generation": 1,
    }
    return {
        "key": key,
        "run_dir": str(tmp_path),
        "checkpoints": str(tmp_path / "checkpoints"),
        "inherit": None,
        "request": Request("train", ["--m", "x"], "local_detached").as_dict(),
        "try_number": 1,
        "max_tries": 2,
        "limits": asdict(Limits()),
    }


def trigger_on(
    monkeypatch: pytest.MonkeyPatch, hold: dict[str, Any], watcher: FakeWatcher, state: str = ""
) -> TrainingTrigger:
    monkeypatch.setattr(JobHold, "take", lambda self, *_: watcher)
    monkeypatch.setattr(module, "airflow_state", lambda key: state)
    trigger = TrainingTrigger(hold, 0.01)
    monkeypatch.setattr(trigger, "_ingest", lambda **_: None)
    return trigger


async def first_event(trigger: TrainingTrigger) -> Any:
    async for event in trigger.run():
        return event
    return None


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
        def user_cancel(self, wait_s: float) -> None:
            super().user_cancel(wait_s)
            if len(self.asked) < 3:
                raise LaunchError("connection refused")

    watcher = Refusing()
    asyncio.run(trigger_on(monkeypatch, hold, watcher, "failed").on_kill())
    assert watcher.asked == ["user_cancel"] * 3


def test_a_log_that_is_away_at_the_start_is_waited_for(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    watcher = FakeWatcher(OUTCOME)
    trigger = trigger_on(monkeypatch, hold, watcher)
    answers: list[Any] = [JobLogError("stale"), JobLogError("stale"), watcher]

    def take(_hold: JobHold, *_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(JobHold, "take", take)
    assert asyncio.run(first_event(trigger)).payload["cause"] == "application"


def test_s13_a_slow_scheduler_does_not_stall_the_loop(
    monkeypatch: Any, hold: dict[str, Any]
) -> None:
    import threading

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
    import threading

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
