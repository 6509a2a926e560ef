"""A job goes on when the app before is over whose end nobody saw, and not before."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_ett.errors import LaunchError
from airflow_ett.events import JobKey

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway

log = logging.getLogger(__name__)

PATIENCE_S = 600.0
"""How long the app of a job that was closed may take to end."""


@dataclass(frozen=True, slots=True)
class Former:
    """An app that was given up before it was seen to be over.

    A user's cancel and a timeout close a job while its trainer may still be saving, longer than
    Airflow lets their process live; and a scheduler may not answer for longer than it is waited
    for.
    """

    app: str
    handle: str | None
    scheduler: str
    app_id: str | None = None

    def await_end(
        self,
        gateway: Gateway,
        job: JobKey,
        pause: Callable[[], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Return when the app is over or unknown; it is told to end once more before that.

        ``pause`` is called between two looks. Raises :class:`LaunchError` when the app is still
        there after :data:`PATIENCE_S`.
        """
        until, told = clock_s() + PATIENCE_S, None
        while clock_s() < until:
            try:
                told = self.look(gateway, told)
                if told is None:
                    return
            except LaunchError as error:
                log.warning("Job %s: %s Waiting goes on.", job, error)
            pause()
        raise self.stuck(job)

    def look(self, gateway: Gateway, told: str | None) -> str | None:
        """Return None when the app is over or unknown; else tell it to end and return its handle.

        It is not told again whose handle was ``told``. Raises :class:`LaunchError` when the
        scheduler does not answer.
        """
        handle = self.handle or gateway.find(self.app, self.scheduler, self.app_id)
        if handle is None:
            return None
        status = gateway.status(handle)
        if status.state is None or status.terminal:
            return None
        if handle != told:
            log.info("App %s, which was given up, is still there: it is told to end", handle)
            gateway.cancel(handle)
        return handle

    def stuck(self, job: JobKey) -> LaunchError:
        """Return the error that says that the app has not ended for long enough."""
        return LaunchError(
            f"Job {job}: app {self.app} of an earlier submission was told to end and has not for "
            f"{PATIENCE_S:.0f} s. End it at its scheduler ({self.scheduler}), then clear the task."
        )
