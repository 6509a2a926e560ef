"""The deferred side of a training task: the same watcher, run by the triggerer.

Scheduler and file calls run in the event loop's bounded thread pool, one at a time per trigger. The
trigger may die and start again anywhere: it claims the job anew and adopts what is there. It
cancels only in ``on_kill`` and only when Airflow's own state says that a user asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_ett.errors import EttError, Fenced, JobLogError, LaunchError
from airflow_ett.events import Cause
from airflow_ett.hooks.ingest import BestEffortIngest
from airflow_ett.hooks.job import JobHold
from airflow_ett.hooks.kill import Kill, airflow_state, meaning
from airflow_ett.hooks.masking import redact
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.watcher import Watcher
from airflow_ett.links import LinkBoard

T = TypeVar("T")

_KILL_WAIT_S = 20.0


class TrainingTrigger(BaseTrigger):
    """Watches one job until its try is over; fires one event with the outcome."""

    def __init__(self, hold: dict[str, Any], poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hold = hold
        self.poll_interval = poll_interval
        self._watcher: Watcher | None = None
        self._pause_s = poll_interval
        self._turn = threading.Lock()
        self._ingest = BestEffortIngest(Path(hold["run_dir"]))
        self._links = LinkBoard(hold["key"])

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the trigger is rebuilt from."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"hold": self.hold, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch; yield the outcome. A superseded trigger waits to be cancelled, silently."""
        try:
            while True:
                outcome = await self._call(self._look)
                if outcome is not None:
                    yield TriggerEvent(outcome.as_dict())
                    return
                await asyncio.sleep(self._pause_s)
        except Fenced as error:
            self.log.warning("%s", error)
            await asyncio.Event().wait()
        except EttError as error:
            yield TriggerEvent(self._failure(error))

    async def on_kill(self) -> None:
        """Cancel when a user ended or cleared the task; leave the job alone in any other case."""
        state = await asyncio.to_thread(airflow_state, self.hold["key"])
        kill = meaning(state)
        self.log.info("Trigger stopped while the task is %s: %s", state, kill)
        while kill is not Kill.MOVED:
            try:
                await self._call(lambda: self._kill(kill))
                return
            except Fenced as error:
                self.log.info("%s", error)
                return
            except EttError as error:  # Airflow gives up on it after half a minute
                self.log.warning("%s Trying again.", error)
                await asyncio.sleep(self.poll_interval)

    def _watching(self) -> Watcher:
        """Return the watcher; claim the job at the first call."""
        if self._watcher is None:
            watcher = JobHold(**self.hold).take("trigger", self.poll_interval)
            action = watcher.begin()
            self._watcher = watcher
            self.log.info("Watching %s (%s)", watcher.handle, action)
        return self._watcher

    def _look(self) -> Outcome | None:
        try:
            watcher = self._watching()
            outcome = watcher.poll()
            for line in watcher.read_log().splitlines():
                self.log.info("[rank 0] %s", line)
            self._links(watcher.places, now=outcome is not None)
            if outcome is None:
                self._ingest()
                self._pause_s = watcher.pause_s
        except Fenced:
            raise
        except JobLogError as error:
            self.log.warning("%s Watching goes on.", error)
            return None
        return outcome

    def _kill(self, kill: Kill) -> None:
        watcher = self._watching()
        if kill is Kill.CLEARED:
            watcher.user_restart()
        else:
            watcher.user_cancel(_KILL_WAIT_S)
        self._ingest(now=True)

    def _failure(self, error: EttError) -> dict[str, Any]:
        cause = Cause.LAUNCH if isinstance(error, LaunchError) else Cause.UNKNOWN
        outcome = Outcome(
            job="",
            cause=cause,
            message=redact(str(error)),
            handle=self._watcher.handle if self._watcher else None,
            cursor=None,
            checkpoint=None,
        )
        return outcome.as_dict()

    async def _call(self, function: Callable[[], T]) -> T:
        """Run in a thread, one call at a time."""

        def in_turn() -> T:
            with self._turn:
                return function()

        return await asyncio.to_thread(in_turn)


def trigger_for(hold: JobHold, poll_interval: float) -> TrainingTrigger:
    """Return the trigger that goes on with a hold."""
    return TrainingTrigger(asdict(hold), poll_interval)
