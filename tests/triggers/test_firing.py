"""What Airflow's triggerer does to triggers: it resumes too soon, and cancels more than once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import airflow_ett.triggers.training as module
from airflow_ett.hooks.job import JobHold
from airflow_ett.triggers.training import TrainingTrigger

HOLD: dict[str, Any] = {
    "checkpoints": "",
    "inherit": None,
    "request": {},
    "try_number": 1,
    "max_tries": 0,
    "limits": {},
}


@pytest.mark.parametrize("error", [KeyError("a bug"), None], ids=["a failure", "an outcome"])
def test_a_trigger_waits_for_the_deferral_to_be_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None
) -> None:
    class Over:
        """A watcher whose try is over at its first look."""

        handle, pause_s = "fake://a", 0.01

        def begin(self) -> str:
            return "report"

        def poll(self) -> Any:
            if error is not None:
                raise error
            return module.Outcome("j", None, "", self.handle, None, None)

        def read_log(self) -> str:
            return ""

        def places(self) -> None:
            return None

    monkeypatch.setattr(module, "SOONEST_S", 0.3)
    monkeypatch.setattr(module, "LinkBoard", lambda key: lambda find, now=False: None)
    monkeypatch.setattr(JobHold, "take", lambda self, *_: Over())
    key = {"deployment": "d", "dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
    trigger = TrainingTrigger({"key": key, "run_dir": str(tmp_path), **HOLD}, 0.01)

    async def fire() -> Any:
        async for event in trigger.run():
            return event.payload

    begun = time.monotonic()
    payload = asyncio.run(fire())
    assert time.monotonic() - begun >= 0.3
    assert payload["cause"] == ("launch" if error else None)


def test_r05_a_kill_hook_that_is_cancelled_itself_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Airflow's triggerer tells a trigger to end about each second until it has."""
    looks: list[str] = []

    class Ending:
        """A watcher of an app that takes five looks to end."""

        epoch = 1

        def recall(self) -> None:
            looks.append("recall")

        def begin_user_cancel(self) -> None:
            looks.append("cancel")

        def user_cancel_over(self) -> bool:
            looks.append("look")
            return looks.count("look") == 5

        def close_if_told(self, *_: Any) -> bool:
            looks.append("closed")
            return True

    monkeypatch.setattr(module, "_KILL_LOOK_S", 0.05)
    monkeypatch.setattr(module, "airflow_state", lambda key: "failed")
    monkeypatch.setattr(module, "LinkBoard", lambda key: lambda find, now=False: None)
    monkeypatch.setattr(JobHold, "take", lambda self, *_, **__: Ending())
    trigger = TrainingTrigger({"key": {}, **HOLD, "run_dir": str(tmp_path)}, 0.01)
    monkeypatch.setattr(trigger, "_ingest", lambda **_: looks.append("ingested"))

    async def kill() -> None:
        hook = asyncio.create_task(trigger.on_kill())
        while "look" not in looks:
            await asyncio.sleep(0.01)
        hook.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hook
        assert "closed" not in looks
        until = time.monotonic() + 10
        while "ingested" not in looks:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)

    asyncio.run(kill())
    assert looks == ["recall", "cancel", *["look"] * 5, "closed", "ingested"]
