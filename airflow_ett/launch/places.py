"""Where people find a job: its app, its logs, its newest checkpoint."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_ett.checkpoints import list_checkpoints
from airflow_ett.errors import LaunchError

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses and absolute paths to show; None where there is nothing to be found.

    ``handle`` is the newest submission's, ``page`` the scheduler's own page of it, ``logs`` where
    rank 0's output is, ``checkpoint`` the newest committed one.
    """

    run_dir: str
    handle: str | None = None
    page: str | None = None
    logs: str | None = None
    checkpoint: str | None = None


class PlaceFinder:
    """Looks a job's places up; what does not answer is left out.

    The scheduler is asked until it has answered once for each app: many jobs share it.
    """

    def __init__(self, gateway: Gateway, run_dir: str, checkpoints: str) -> None:
        self._gateway = gateway
        self._checkpoints = checkpoints
        self._job = Places(run_dir)
        self._app = self._job

    def find(self, handle: str | None) -> Places:
        """Return the places of the job whose newest submission has this handle."""
        checkpoint = self._newest()
        if handle is not None and handle != self._app.handle:
            try:
                page, logs = self._gateway.page(handle), self._gateway.log_location(handle)
            except LaunchError:
                return replace(self._job, handle=handle, checkpoint=checkpoint)
            self._app = replace(self._job, handle=handle, page=page, logs=logs)
        return replace(self._app, checkpoint=checkpoint)

    def _newest(self) -> str | None:
        with contextlib.suppress(OSError):
            committed = list_checkpoints(self._checkpoints) if self._checkpoints else []
            return committed[-1].uri if committed else None
        return None
