"""What a publishing task waits for in the triggerer: its app's end, a training's next checkpoint.

``state`` is the task's own, handed back with the event: Airflow keeps nothing else for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_ett import config
from airflow_ett.errors import EttError, LaunchError
from airflow_ett.events import JobKey
from airflow_ett.hooks.following import Due, Following
from airflow_ett.hooks.kill import Kill, airflow_state, meaning
from airflow_ett.hooks.masking import redact
from airflow_ett.launch.publishing import PublishApp
from airflow_ett.launch.root import Root
from airflow_ett.triggers import training as trainings
from airflow_ett.triggers.pool import KILLS, LOOKS


class _Waiting(BaseTrigger):
    """Looks again and again, in threads, until there is something to fire for, or it is late."""

    def __init__(
        self, *, state: dict[str, Any], poll_interval: float, deadline_ns: int | None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state = state
        self.poll_interval = poll_interval
        self.deadline_ns = deadline_ns

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the trigger is rebuilt from."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        kept = ("state", "poll_interval", "deadline_ns")
        return name, {field: getattr(self, field) for field in kept} | self.fields()

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return what a kind of trigger is rebuilt from beyond that."""

    @abstractmethod
    def look(self) -> dict[str, Any] | None:
        """Return what the event is to hold, None while there is nothing."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yield one event: what a look has found, or that it is ``late``."""
        soonest = time.monotonic() + trainings.SOONEST_S
        found: dict[str, Any] | None = None
        while found is None and not self._late():
            found = await asyncio.wrap_future(LOOKS.submit(self.look))
            if found is None:
                await asyncio.sleep(self.poll_interval)
        await asyncio.sleep(max(0.0, soonest - time.monotonic()))
        yield TriggerEvent({"late": found is None, **(found or {}), "state": self.state})

    def _late(self) -> bool:
        return self.deadline_ns is not None and time.time_ns() >= self.deadline_ns


class AppTrigger(_Waiting):
    """Waits for the end of the app of a publishing task; ``key`` has the fields of its key."""

    def __init__(self, *, key: dict[str, Any], try_number: int, **waiting: Any) -> None:
        super().__init__(**waiting)
        self.key = key
        self.try_number = try_number
        self._app: PublishApp | None = None

    def fields(self) -> dict[str, Any]:
        """Return the key and the try."""
        return {"key": self.key, "try_number": self.try_number}

    def look(self) -> dict[str, Any] | None:
        """Return an empty dictionary when the app is over: the task reads what came of it."""
        try:
            self._app = self._app or _app(self.key)
            return None if self._app.result() is None else {}
        except (LaunchError, OSError) as error:
            self.log.warning("%s Asking again.", redact(str(error)))
            return None
        except EttError:
            return {}

    async def on_kill(self) -> None:
        """End the app if a user has ended the task.

        After a clear the next try ends it; a trigger that moves leaves it alone.
        """
        await asyncio.shield(asyncio.wrap_future(KILLS.submit(self._see_off)))

    def _see_off(self) -> None:
        with contextlib.suppress(AirflowRuntimeError, EttError, OSError):
            state = airflow_state(self.key)
            self.log.info("Trigger stopped while the task is %s", state)
            if meaning(state) is Kill.ENDED:
                _app(self.key).cancel(self.try_number)


class FollowTrigger(_Waiting):
    """Waits for what is to be published next of a training; ``key`` has the fields of its key."""

    def __init__(
        self, *, key: dict[str, Any], since: str | None, due_ns: int, **waiting: Any
    ) -> None:
        super().__init__(**waiting)
        self.key = key
        self.since = since
        self.due_ns = due_ns
        self._following = Following(key, since=since, due_ns=due_ns)

    def fields(self) -> dict[str, Any]:
        """Return the training, and what of it was published last."""
        return {"key": self.key, "since": self.since, "due_ns": self.due_ns}

    def look(self) -> dict[str, Any] | None:
        """Return what is due."""
        due: Due | None = self._following.look()
        return None if due is None else {"source": due.source, "over": due.over}


def _app(key: dict[str, Any]) -> PublishApp:
    # Importing TorchX takes a while, which DAG parsing is spared.
    from airflow_ett.launch.gateway import Gateway

    return PublishApp(Root.of(config.load()), JobKey(**key), Gateway())
