"""Bring a job that nobody watches any more to its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_ett.events import Cause, JobState
from airflow_ett.launch.limits import UNKNOWN_GRACE_S
from airflow_ett.launch.verdict import Verdict
from airflow_ett.launch.watcher import Watcher

_WAIT_S = UNKNOWN_GRACE_S + 10
"""Long enough to call an app vanished that its scheduler does not know."""

_PAUSE_S = 0.5


class Ender(Watcher):
    """A watcher that ends a job and submits nothing, whatever happens.

    Its request allows no relaunch; of the rest only the scheduler matters.
    """

    def end(self, reason: Cause, text: str, sleep: Callable[[float], None] = time.sleep) -> str:
        """Cancel what still runs, wait for its end, close the job; return what came of it.

        ``text`` says in a sentence why, for the log. What ended by itself before keeps its own
        cause. A job whose task was cleared is not closed: its next try goes on with it. Raises
        :class:`Fenced` when a newer owner has the job, :class:`LaunchError` when the scheduler
        cannot be asked.
        """
        self._ledger.recall()
        history = self._ledger.history
        live = history.live
        if live is not None and not self._submitter.reached_scheduler(live):
            self._ledger.attempt_ended(live, Verdict(reason, {"source": "launcher", "text": text}))
        outcome = self.poll()
        if history.live is not None:
            self.cancel(reason, text)
            limit_ns = self._now_ns() + int(_WAIT_S * 1e9)
            while (outcome := self.poll()) is None:
                if self._now_ns() >= limit_ns:
                    return "told to end, which it has not yet; the next run looks again"
                sleep(_PAUSE_S)
        if reason is Cause.USER_RESTART:
            return "told to end; the next try goes on with it"
        cause = outcome.cause if outcome else reason
        user = cause is Cause.USER_CANCELLED
        self.close_job(JobState.CANCELLED if user else JobState.FAILED, cause)
        return f"closed as {history.ended}" + (f", cause {cause}" if cause else "")
