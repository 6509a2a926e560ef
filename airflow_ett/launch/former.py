"""The next generation of a job begins when the former one's app is over, and not before."""

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
    """The app of a job that was closed before the app was seen to be over.

    A user's cancel and a timeout close a job while its trainer may still be saving, longer than
    Airflow lets their process live.
    """

    app: str
    handle: str | None
    scheduler: str

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
        until, told = clock_s() + PATIENCE_S, False
        while clock_s() < until:
            try:
                handle = self.handle or gateway.find(self.app, self.scheduler)
                if handle is None or self._over(gateway, handle):
                    return
                if not told:
                    log.info("Job %s waits for %s, which is still ending", job, handle)
                    gateway.cancel(handle)
                    told = True
            except LaunchError as error:
                log.warning("Job %s: %s Waiting goes on.", job, error)
            pause()
        raise LaunchError(
            f"Job {job}: app {self.app} of an earlier generation was told to end and has not for "
            f"{PATIENCE_S:.0f} s. End it at its scheduler ({self.scheduler}), then clear the task."
        )

    def _over(self, gateway: Gateway, handle: str) -> bool:
        status = gateway.status(handle)
        return status.state is None or status.terminal
