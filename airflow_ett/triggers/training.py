"""The deferred side of a training task: the same watcher, run by the triggerer.

Scheduler and file calls run in bounded pools of threads (:mod:`airflow_ett.triggers.pool`), one at
a time per trigger. The trigger may die and start again anywhere: it claims the job anew and adopts
what is there. It cancels only in ``on_kill`` and only when Airflow's own state says that a user
asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_ett.errors import EttError, Fenced, JobLogError
from airflow_ett.events import Cause, JobState
from airflow_ett.hooks.ingest import BestEffortIngest
from airflow_ett.hooks.job import JobHold
from airflow_ett.hooks.kill import Kill, airflow_state, meaning
from airflow_ett.hooks.masking import redact, without_tokens
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.watcher import Watcher
from airflow_ett.links import LinkBoard
from airflow_ett.triggers.pool import KILLS, LATE, LOOKS

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

_KILL_RETRY_S = 1.0

_AIRFLOW_WAIT_S = 30.0

_AWAY_S = 5.0
"""A job whose log is away so long after its deadline is left to its task."""

_OVERDUE_S = 60.0
"""So is one that no look has come back from for so long after it: half a minute is what looks at
two hundred trainings of a slow scheduler take, and a cancel takes as long as a look."""

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
        self._turn: Future[Outcome | None] | None = None
        self._left = False
        self._deadline_ns = _deadline_ns(hold)
        self._ingest = BestEffortIngest(hold["run_dir"])
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
                outcome = await self._looked()
                if outcome is not None:
                    await asyncio.sleep(max(0.0, soonest - time.monotonic()))
                    yield self._event(outcome)
                    return
                await asyncio.sleep(min(self._pause_s, max(self._left_s(), _AWAY_S)))
        except Fenced as error:
            self.log.warning("%s", error)
            await asyncio.Event().wait()
        except Exception as error:  # the task sees to the job's end where no try follows
            self.log.exception("The watch of %s failed", self.hold["run_dir"])
            await asyncio.sleep(max(0.0, soonest - time.monotonic()))
            name = "" if isinstance(error, EttError) else f"{type(error).__name__}: "
            yield self._event(self._ended(Cause.LAUNCH, f"{name}{error}"))
        finally:
            self._left = True

    def _event(self, outcome: Outcome) -> TriggerEvent:
        return TriggerEvent({**outcome.as_dict(), "run_dir": self.hold["run_dir"]})

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
        """Ask Airflow what the kill means and do it, again and again until both have answered.

        In no hurry any more once Airflow has stopped waiting.
        """
        until = time.monotonic() + _AIRFLOW_WAIT_S
        while True:
            try:
                state = await _see_to(partial(airflow_state, self.hold["key"]))
                kill = meaning(state)
                self.log.info("Trigger stopped while the task is %s: %s", state, kill)
                if kill is not Kill.MOVED:
                    await self._end(kill)
                return
            except Fenced as error:
                self.log.info("%s", error)
                return
            except (EttError, AirflowRuntimeError, OSError) as error:
                self.log.warning("%s Trying again.", error)
            hurry = time.monotonic() < until
            await asyncio.sleep(_KILL_RETRY_S if hurry else max(_KILL_RETRY_S, self.poll_interval))

    async def _end(self, kill: Kill) -> None:
        """Tell the app; wait a little for the end of one that a user ended, and close its job.

        A job whose app could not be told stays open, for the reaper to find.
        """
        until = time.monotonic() + _KILL_WAIT_S
        hangs = not await self._look_over()
        watcher = await _see_to(partial(self._tell, kill, hangs))
        if kill is Kill.ENDED:
            # Not in a thread: many trainings may be told at once, and each takes its time to save.
            while not await _see_to(watcher.user_cancel_over) and time.monotonic() < until:
                await asyncio.sleep(_KILL_LOOK_S)
            close = partial(watcher.close_if_told, JobState.CANCELLED, Cause.USER_CANCELLED)
            if not await _see_to(close):
                self.log.warning(
                    "The training in %s could not be told to end and may still start; its job "
                    "stays open for the reaper to find.",
                    self.hold["run_dir"],
                )
        await _see_to(partial(self._ingest, now=True))

    async def _look_over(self) -> bool:
        """Wait for the look in flight; return whether it is over."""
        return self._turn is None or await _over(self._turn, _LOOK_WAIT_S)

    def _tell(self, kill: Kill, look_hangs: bool) -> Watcher:
        """Tell the scheduler; return the watcher that did.

        A watcher serves one thread at a time: beside a look that hangs another one takes over, if
        nobody else has.
        """
        watcher = self._watcher
        if watcher is None or look_hangs:
            after = watcher.epoch if watcher else None
            watcher = JobHold.read(self.hold).take("trigger", self.poll_interval, after=after)
            watcher.recall()
            self._watcher, self._turn = watcher, None
        if kill is Kill.CLEARED:
            watcher.user_restart()
        else:
            watcher.begin_user_cancel()
        return watcher

    def _watching(self) -> Watcher | None:
        """Return the watcher; claim the job at the first call, if the task still wants it."""
        if self._watcher is None:
            hold = JobHold.read(self.hold)
            if hold.idle() and self._unwanted():
                return None
            watcher = hold.take("trigger", self.poll_interval)
            action = watcher.begin()
            self._watcher = watcher
            self.log.info("Watching %s (%s)", watcher.handle, action)
        return self._watcher

    def _unwanted(self) -> bool:
        """Return whether a user has ended the task; False where Airflow does not answer.

        A triggerer that starts again hears of it only after it has started its triggers.
        """
        try:
            state = airflow_state(self.hold["key"])
        except (AirflowRuntimeError, OSError) as error:
            self.log.info("Airflow does not tell whether the task goes on: %s", error)
            return False
        ended = state in ("failed", "success", "skipped")
        if ended:
            self.log.info("Nothing is submitted for a task that is %s", state)
        return ended

    async def _looked(self) -> Outcome | None:
        """Look once, in a thread; return the outcome of a try that is over.

        A look that still waits for a thread at the deadline is made in one of :data:`LATE`: those
        of others may hang. One that hangs itself is waited for no longer than ``_OVERDUE_S`` beyond
        the deadline; its thread ends when it does, and owns the job until the task goes on.
        """
        self._turn = LOOKS.submit(self._look)
        if not await _over(self._turn, max(0.0, self._left_s())) and self._turn.cancel():
            self._turn = LATE.submit(self._look)
        if not await _over(self._turn, max(0.0, self._left_s()) + _OVERDUE_S):
            return self._overdue("no look at it has come to an end since.")
        return self._turn.result()

    def _left_s(self) -> float:
        """Return the seconds that are left until the deadline: negative after it."""
        deadline_ns = self._deadline_ns
        return math.inf if deadline_ns is None else (deadline_ns - time.time_ns()) / 1e9

    def _look(self) -> Outcome | None:
        try:
            watcher = self._watching()
            if watcher is None:
                return None
            outcome = watcher.poll()
            if self._left:  # a kill may be waiting for its turn
                return outcome
            for line in watcher.read_log().splitlines():
                self.log.info("[rank 0] %s", without_tokens(line))
            self._links(watcher.places, now=outcome is not None)
            if outcome is None:
                self._ingest()
                self._pause_s = watcher.pause_s
        except Fenced:
            raise
        except JobLogError as error:
            if self._left_s() <= -_AWAY_S:
                return self._overdue(str(error))
            self.log.warning("%s Watching goes on.", error)
            return None
        return outcome

    def _overdue(self, why: str) -> Outcome:
        return self._ended(
            Cause.TIMEOUT,
            "Not over at the deadline that execution_timeout sets, and whether it was told to end "
            f"is not known: {why}",
        )

    def _ended(self, cause: Cause, message: str) -> Outcome:
        """Return how a try ended whose job's log does not tell."""
        handle = self._watcher.handle if self._watcher else None
        return Outcome("", cause, redact(message), handle, cursor=None, checkpoint=None)


async def _over(call: Future[Any], timeout_s: float) -> bool:
    """Wait for a call in a pool; return whether it is over.

    One that still waits for a thread when nobody waits for it any more is never made.
    """
    if call.done():
        return True
    waited = asyncio.wrap_future(call)
    try:
        await asyncio.wait([waited], timeout=None if math.isinf(timeout_s) else timeout_s)
    finally:
        waited.cancel()
    if waited.done() and not waited.cancelled():
        waited.exception()  # the caller's business, not the event loop's
    return call.done()


async def _see_to(function: Callable[[], T]) -> T:
    """Call ``function`` for a kill; it is called also when Airflow has stopped waiting by then."""
    return await asyncio.shield(asyncio.wrap_future(KILLS.submit(function)))


def _deadline_ns(hold: dict[str, Any]) -> int | None:
    """Return when the try is to be over; None where that is never, or nobody can tell."""
    with contextlib.suppress(JobLogError):
        return Limits(**JobHold.read(hold).limits).deadline_ns
    return None


def trigger_for(hold: JobHold, poll_interval: float) -> TrainingTrigger:
    """Return the trigger that goes on with a hold."""
    return TrainingTrigger(asdict(hold), poll_interval)
