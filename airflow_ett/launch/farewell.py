"""What may live of a job although it is to be over, and whether its scheduler was told so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_ett.errors import LaunchError
from airflow_ett.launch.former import PATIENCE_S, Former
from airflow_ett.launch.history import Submission
from airflow_ett.launch.ledger import Ledger
from airflow_ett.launch.submitting import Submitter

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway

log = logging.getLogger(__name__)


class Farewell:
    """Tells a job's apps to end under one claim; ``told`` is the handle of the last one told."""

    def __init__(
        self,
        ledger: Ledger,
        submitter: Submitter,
        gateway: Gateway,
        scheduler: str,
        now_ns: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._submitter = submitter
        self._gateway = gateway
        self._scheduler = scheduler
        self._now_ns = now_ns
        self._since_ns: int | None = None
        self.told: str | None = None

    def tell(self, submission: Submission) -> None:
        """Tell the scheduler, if it has the app.

        Raises :class:`LaunchError` when it cannot be told.
        """
        if self._submitter.reached_scheduler(submission):
            self._gateway.cancel(str(submission.handle))
            self.told = submission.handle

    def untold(self) -> Submission | None:
        """Return the submission that may live and was not told to end.

        One that is only intended may yet reach its scheduler.
        """
        last = self._ledger.history.unfinished
        if last is None or (last.handle is not None and last.handle == self.told):
            return None
        return last

    def lingers(self) -> bool:
        """Return whether the app before may live, since nobody saw its end; it is told to end.

        Only the scheduler's answer says that it does not. Raises :class:`LaunchError` when that
        takes too long.
        """
        last, now_ns = self._ledger.history.unfinished, self._now_ns()
        if last is None:
            return False
        job = self._ledger.log.key
        former = Former(last.app, last.handle, self._scheduler, last.app_id)
        if self._since_ns is None:
            self._since_ns = now_ns
        if now_ns - self._since_ns >= PATIENCE_S * 1e9:
            raise former.stuck(job)
        self._ledger.check()
        try:
            self.told = former.look(self._gateway, self.told)
        except LaunchError as error:
            log.warning("Job %s: %s It goes on when %s is over.", job, error, last.app)
            return True
        if self.told is None:
            self._since_ns = None
        return self.told is not None
