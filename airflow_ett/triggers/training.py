"""The deferred side of a training task: the same watcher, run by the triggerer.

Scheduler and file calls run in bounded pools of threads (:mod:`airflow_ett.triggers.pool`), one at
a time per trigger. The trigger may die and start again anywhere: it claims the job anew and adopts
what is there. It cancels only in ``on_kill`` and only when Airflow's own state says that a user
asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_ett.errors import EttError, Fenced, JobLogError
from airflow_ett.events import Cause, JobState
from airflow_ett.hooks.ingest import BestEffortIngest
from airflow_ett.hooks.job import JobHold
from airflow_ett.hooks.kill import Kill, airflow_state, meaning
from airflow_ett.hooks.masking import redact
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.watcher import Watcher
from airflow_ett.links import LinkBoard
from airflow_ett.triggers.pool import KILLS, LOOKS

T = TypeVar("T")

SOONEST_S = 10.0
"""A trigger that fires right after the deferral makes Airflow fail the task: a worker may need 5 s
to notice that the deferring process has exited, and where the scheduler hears of that after the
task has gone on, it takes the task for killed (seen in half of the trainings of a few seconds)."""

_KILL_WAIT_S = 20.0
"""For so long a job that a user ended may take to end; Airflow waits for half a minute."""

_LOOK_WAIT_S = 10.0
"""A look that takes longer hangs: a kill goes past it."""

_KILL_LOOK_S = 0.5


_endings: set[asyncio.Task[None]] = set()
"""The event loop itself keeps no task alive."""


class TrainingTrigger(BaseTrigger):
    """Watches one job until its try is over; fires one event with the outcome."""

    def __init__(self, hold: dict[str, Any], poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hold = hold
        self.poll_interval = poll_interval
        self._watcher: Watcher | None = None
        self._pause_s = poll_interval
        self._turn: Future[Any] | None = None
        self._left = False
        self._ingest = BestEffortIngest(Path(hold["run_dir"]))
        self._links = LinkBoard(hold["key"])

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the trigger is rebuilt from."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"hold": self.hold, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch; yield the outcome. A superseded trigger waits to be cancelled, silently."""
        soonest = time.monotonic() + SOONEST_S
        try:
            while True:
                self._turn = LOOKS.submit(self._look)
                outcome = await asyncio.wrap_future(self._turn)
                if outcome is not None:
                    await asyncio.sleep(max(0.0, soonest - time.monotonic()))
                    yield TriggerEvent(outcome.as_dict())
                    return
                await asyncio.sleep(self._pause_s)
        except Fenced as error:
            self.log.warning("%s", error)
            await asyncio.Event().wait()
        except Exception as error:  # the task sees to the job's end where no try follows
            self.log.exception("The watch of %s failed", self.hold["run_dir"])
            await asyncio.sleep(max(0.0, soonest - time.monotonic()))
            yield TriggerEvent(self._failure(error))
        finally:
            self._left = True

    async def on_kill(self) -> None:
        """Cancel when a user ended or cleared the task; leave the job alone in any other case.

        Airflow tells a trigger to end again and again, about each second, which cancels this very
        call: what it has begun goes on by itself.
        """
        ending = asyncio.create_task(self._see_off())
        _endings.add(ending)
        ending.add_done_callback(_endings.discard)
        await asyncio.shield(ending)

    async def _see_off(self) -> None:
        state = await _see_to(partial(airflow_state, self.hold["key"]))
        kill = meaning(state)
        self.log.info("Trigger stopped while the task is %s: %s", state, kill)
        while kill is not Kill.MOVED:
            try:
                await self._end(kill)
                return
            except Fenced as error:
                self.log.info("%s", error)
                return
            except EttError as error:  # Airflow gives up on it after half a minute
                self.log.warning("%s Trying again.", error)
                await asyncio.sleep(self.poll_interval)

    async def _end(self, kill: Kill) -> None:
        """Tell the app; wait a little for the end of one that a user ended, and close its job."""
        until = time.monotonic() + _KILL_WAIT_S
        hangs = not await self._look_over()
        watcher = await _see_to(partial(self._tell, kill, hangs))
        if kill is Kill.ENDED:
            # Not in a thread: many trainings may be told at once, and each takes its time to save.
            while not await _see_to(watcher.user_cancel_over) and time.monotonic() < until:
                await asyncio.sleep(_KILL_LOOK_S)
            await _see_to(partial(watcher.close_job, JobState.CANCELLED, Cause.USER_CANCELLED))
        await _see_to(partial(self._ingest, now=True))

    async def _look_over(self) -> bool:
        """Wait for the look in flight; return whether it is over."""
        if self._turn is None or self._turn.done():
            return True
        look = asyncio.wrap_future(self._turn)
        done, _ = await asyncio.wait([look], timeout=_LOOK_WAIT_S)
        if done:
            look.exception()  # none of the kill's business
        return bool(done)

    def _tell(self, kill: Kill, look_hangs: bool) -> Watcher:
        """Tell the scheduler; return the watcher that did.

        A watcher serves one thread at a time: beside a look that hangs another one takes over, if
        nobody else has.
        """
        if self._watcher is None or look_hangs:
            after = self._watcher.epoch if self._watcher else None
            watcher = JobHold(**self.hold).take("trigger", self.poll_interval, after=after)
            watcher.recall()
            self._watcher, self._turn = watcher, None
        if kill is Kill.CLEARED:
            self._watcher.user_restart()
        else:
            self._watcher.begin_user_cancel()
        return self._watcher

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
            if self._left:  # a kill may be waiting for its turn
                return outcome
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

    def _failure(self, error: Exception) -> dict[str, Any]:
        name = "" if isinstance(error, EttError) else f"{type(error).__name__}: "
        outcome = Outcome(
            job="",
            cause=Cause.LAUNCH,
            message=redact(f"{name}{error}"),
            handle=self._watcher.handle if self._watcher else None,
            cursor=None,
            checkpoint=None,
        )
        return outcome.as_dict()


async def _see_to(function: Callable[[], T]) -> T:
    """Call ``function`` for a kill; it is called also when Airflow has stopped waiting by then."""
    return await asyncio.shield(asyncio.wrap_future(KILLS.submit(function)))


def trigger_for(hold: JobHold, poll_interval: float) -> TrainingTrigger:
    """Return the trigger that goes on with a hold."""
    return TrainingTrigger(asdict(hold), poll_interval)
