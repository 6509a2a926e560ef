"""Bring a job that nobody watches any more to its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_ett.events import USER_CAUSES, Cause, JobState
from airflow_ett.launch.history import Submission
from airflow_ett.launch.limits import UNKNOWN_GRACE_S
from airflow_ett.launch.verdict import Verdict
from airflow_ett.launch.watcher import Watcher

_WAIT_S = UNKNOWN_GRACE_S + 10
"""Long enough to call an app vanished that its scheduler does not know."""

_PAUSE_S = 0.5


class Ender(Watcher):
    """A watcher that ends a job and submits nothing, whatever happens.

    Its request allows no relaunch; of the rest only the scheduler matters. Nor does it know the
    secrets among the trainer's variables, so that it quotes no output.
    """

    quotes = False

    def end(self, reason: Cause, text: str, sleep: Callable[[float], None] = time.sleep) -> str:
        """Cancel what still runs, wait for its end, close the job; return what came of it.

        ``text`` says in a sentence why, for the log. What ended by itself before keeps its own
        cause; what a user's restart ended does not, since the job was to go on. A job whose task
        was cleared is not closed: its next try goes on with it. Raises :class:`Fenced` when a newer
        owner has the job, :class:`LaunchError` when the scheduler cannot be asked.
        """
        self._recall(reason, text)
        history = self._ledger.history
        outcome = self.poll()
        if history.unfinished is not None:
            self.cancel(reason, text)
            limit_ns = self._now_ns() + int(_WAIT_S * 1e9)
            while (outcome := self.poll()) is None:
                if self._now_ns() >= limit_ns:
                    return "told to end, which it has not yet; the next run looks again"
                sleep(_PAUSE_S)
        if reason is Cause.USER_RESTART:
            return "told to end; the next try goes on with it"
        cause = outcome.cause if outcome else reason
        return self._close(reason if cause is Cause.USER_RESTART else cause)

    def give_up(
        self, cause: Cause, text: str, wait_s: float, sleep: Callable[[float], None] = time.sleep
    ) -> str:
        """The job's task fails for good: cancel what still runs, wait a little, close the job.

        A training may take longer to save and to end than its task may wait for it. The job is
        closed all the same, with ``cause``; its next generation waits for the app. One that the
        scheduler cannot be told to end stays open, for the reaper to find. Raises as :meth:`end`.
        """
        self._recall(cause, text)
        with self._patiently():
            self.cancel(cause, text)
        limit_ns = self._now_ns() + int(wait_s * 1e9)
        while self.poll() is None and self._ledger.history.live is not None:
            if self._now_ns() >= limit_ns:
                break
            sleep(_PAUSE_S)
        live = self._ledger.history.live
        if live is not None and self._farewell.untold() is None:
            self._write_off(live)
        return self._close(cause)

    def _recall(self, reason: Cause, text: str) -> None:
        """Read the job's history; what never reached the scheduler is over.

        Who ended the task knows of it; after any other failure a success is left to a cleared try.
        """
        self.heard = reason in USER_CAUSES
        self._ledger.recall()
        live = self._ledger.history.live
        if live is not None and not self._submitter.reached_scheduler(live):
            self._ledger.attempt_ended(live, Verdict(reason, {"source": "launcher", "text": text}))

    def _write_off(self, live: Submission) -> None:
        """Write the end of a submission that was told to end and has not yet."""
        reason = live.cancel_reason or Cause.UNKNOWN
        text = live.cancel_text or f"Cancelled on request: {reason}."
        evidence = {"source": "launcher", "text": f"{text} It was still ending.", "seen": False}
        self._ledger.attempt_ended(live, Verdict(reason, evidence))

    def _close(self, cause: Cause | None) -> str:
        """Write the job's end, unless it was seen to succeed; return how it ended, in words."""
        user = cause is Cause.USER_CANCELLED
        if not self.close_if_told(JobState.CANCELLED if user else JobState.FAILED, cause):
            return f"{self.handle} could not be told to end and may still run"
        ended = self._ledger.history.ended
        named = cause and ended is not JobState.SUCCEEDED
        return f"closed as {ended}" + (f", cause {cause}" if named else "")
