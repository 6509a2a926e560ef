"""One watcher for both modes: it submits, follows, judges and relaunches a job until it is over.

The task (or the trigger) claims the job and calls :meth:`Watcher.poll` until it answers. Everything
that must survive the process is in the job log before it is done, so any other process can go on:

* intent before submit, handle after it; a missing handle is found by the app's deterministic name;
* every submit and cancel first checks the claim: whoever lost it raises ``Fenced`` and stops;
* a log that cannot be reached raises ``JobLogError``: the caller keeps polling.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_ett.errors import LaunchError
from airflow_ett.events import Cause, JobState, Layer
from airflow_ett.launch.adoption import (
    Action,
    cleared,
    decide,
    made_again,
    may_relaunch,
    rested,
)
from airflow_ett.launch.aftermath import Outcome, conclude, examine
from airflow_ett.launch.farewell import Farewell
from airflow_ett.launch.history import UNKNOWN, Submission
from airflow_ett.launch.joblog import Claim
from airflow_ett.launch.ledger import Ledger
from airflow_ett.launch.limits import Limits, known
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.pace import Pace
from airflow_ett.launch.places import PlaceFinder, Places
from airflow_ett.launch.request import Request
from airflow_ett.launch.reruns import conclude as conclude_runs
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.streaming import read_new
from airflow_ett.launch.submitting import Submitter

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway

log = logging.getLogger(__name__)


class Watcher:
    """Watches one job under one claim. Not thread-safe: call it from one thread at a time."""

    quotes = True
    """Whether the end of an attempt is told with the last lines of its output."""

    heard = True
    """Whether a success becomes its task's."""

    def __init__(
        self,
        job: OpenJob,
        claim: Claim,
        request: Request,
        gateway: Gateway,
        *,
        limits: Limits | None = None,
        poll_interval_s: float = 1.0,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._job = job
        self._claim = claim
        self._request = request
        self._gateway = gateway
        self._limits = limits or Limits()
        self._now_ns = now_ns
        self._ledger = Ledger(job.log, claim, now_ns)
        self._submitter = Submitter(job, self._ledger, request, gateway)
        self._farewell = Farewell(self._ledger, self._submitter, gateway, request.scheduler, now_ns)
        self._finder = PlaceFinder(gateway, job.log.place, job.checkpoints)
        self._next_layer: Layer | None = None
        self._rested = False
        self._pace = Pace(job.log, self._limits, poll_interval_s, now_ns)

    @property
    def epoch(self) -> int:
        """The claim that this watcher acts under."""
        return self._ledger.claim.epoch

    @property
    def handle(self) -> str | None:
        """The newest submission's handle."""
        last = self._ledger.history.last
        return last.handle if last else None

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next call of :meth:`poll`."""
        return self._pace.pause_s(self._ledger.history.live)

    def places(self) -> Places:
        """Look up where people find the job."""
        return self._finder.find(self.handle)

    def recall(self) -> None:
        """Read what has happened to the job so far: all that ending it needs, in place of begin."""
        self._ledger.recall()

    def begin(self) -> Action:
        """Adopt, find, restart or submit; return what was done.

        Raises :class:`ConfigurationError` before anything is submitted, :class:`LaunchError` when
        the scheduler refuses.
        """
        self._ledger.recall()
        history, claim = self._ledger.history, self._claim
        tries = {"try_number": claim.try_number, "max_tries": claim.max_tries}
        new_run = made_again(history, try_number=claim.try_number, mode=claim.mode)
        action = decide(
            history,
            **tries,
            digest=self._submitter.digest,
            new_run=new_run,
            max_relaunches=self._request.max_relaunches,
        )
        live = history.live
        if history.opened is None:
            self._submitter.open()
        if action is Action.REPORT:
            pass
        elif action is Action.SUBMIT or live is None:
            self._next_layer = Layer.AIRFLOW if new_run and history.last else None
            self._submit_when_due()
        elif action in (Action.ADOPT, Action.FIND):
            self._adopt(live, action)
        else:
            self._restart(live, asked=new_run or cleared(history, **tries))
        return action

    def poll(self) -> Outcome | None:
        """Look once; return the outcome when the try is over.

        Between two looks at the scheduler this is only a glance at the job's log. Raises
        :class:`Fenced` when a newer owner watches, :class:`JobLogError` while the log is away.
        """
        live, last = self._ledger.history.live, self._ledger.history.last
        self._rested = live is not None and self._pace.rests(live)
        if self._rested:
            return None
        self._ledger.check()
        if live is None:
            return None if last is None else self._after(last)
        self._pace.look()
        status = self._ask(live)
        self._ledger.check()  # an answer may take long enough for somebody else to take over
        if status.terminal:
            self._ledger.state(live, status, self._log_of(live))
            if self._limits.settled(live, status, self._now_ns()):
                return self._end(live, status)
            self._pace.stir()
            return None
        self._note_state(live, status)
        self._enforce(live, status)
        heartbeat_ns = self._job.log.heartbeat_ns()
        if self._limits.forgotten(live, self._now_ns(), heartbeat_ns):
            answered = status.answered and status.state is None
            return self._end(live, replace(status, state=None, answered=answered))
        return None

    def cancel(self, reason: Cause, text: str | None = None) -> None:
        """Ask the scheduler to end what may live, if anything; of what lives the log has it first.

        Raises :class:`LaunchError` when the scheduler cannot be asked; :meth:`poll` asks again.
        """
        self._ledger.check()
        last = self._ledger.history.unfinished
        if last is None:
            return
        if not last.ended and last.cancel_reason is None:
            self._ledger.cancel_requested(last, reason, text)
        self._pace.stir()
        self._farewell.tell(last)

    def user_cancel(self, wait_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """A user ended the task: cancel, wait a little for the end, and close the job.

        A training may take longer to save and to end than Airflow lets this process live. The job
        is closed all the same, since no try may ever follow; one that does begins the next
        generation, and that waits for the app first (:class:`airflow_ett.launch.former.Former`).
        One that the scheduler was not told of stays open, for the reaper to find.
        """
        self.begin_user_cancel()
        limit = self._now_ns() + int(wait_s * 1e9)
        while not self.user_cancel_over() and self._now_ns() < limit:
            sleep(0.2)
        self.close_if_told(JobState.CANCELLED, Cause.USER_CANCELLED)

    def begin_user_cancel(self) -> None:
        """The first step of :meth:`user_cancel`, for those who cannot wait here: tell the app."""
        self._next_layer = None
        self.cancel(Cause.USER_CANCELLED)

    def user_cancel_over(self) -> bool:
        """Look whether what :meth:`begin_user_cancel` told to end is over."""
        return self._ledger.history.live is None or self.poll() is not None

    def user_restart(self) -> None:
        """A user cleared the running task: say so and cancel; the next try submits and resumes."""
        self._ledger.check()
        self._ledger.user_restart()
        self.cancel(Cause.USER_RESTART)

    def close_if_told(self, state: JobState, cause: Cause | None) -> bool:
        """Close the job unless something may live that this watcher has not told to end.

        Returns whether it was closed.
        """
        untold = self._farewell.untold()
        if untold is not None:
            log.warning("Job %s stays open: %s may still run", self._job.log.key, untold.app)
            return False
        self.close_job(state, cause)
        return True

    def close_job(self, state: JobState, cause: Cause | None) -> None:
        """Write the job's terminal event, once; from then on its result is frozen."""
        self._ledger.check()
        self._ledger.job_ended(state, cause, heard=self.heard)

    def read_log(self) -> str:
        """Return what rank 0 has printed since the last call, in whichever process that was.

        Nothing is read where :meth:`poll` only glanced: schedulers are asked for logs, too.
        """
        if self._rested:
            return ""
        return read_new(self._job.log, self._gateway, self._ledger.history.last)

    def _adopt(self, live: Submission, action: Action) -> None:
        """Go on with the live submission, whatever this try would have asked for."""
        if live.digest != self._submitter.digest:
            log.warning(
                "Job %s: submission %d goes on with what it was submitted with; this try would "
                "ask for something else. Clear the task to restart it with the new parameters.",
                self._job.log.key,
                live.number,
            )
        if action is Action.FIND:
            self._submitter.find_or_submit(live)
        else:
            self._ledger.adopted(live)

    def _restart(self, live: Submission, *, asked: bool) -> None:
        """Have the live submission ended and followed by another; ``asked``: a user wants that."""
        if not self._submitter.reached_scheduler(live):
            self._submitter.begin_over(live, self._layer())
            return
        if asked and not self._ledger.history.user_restart:
            self._ledger.user_restart()
        with self._patiently():
            self.cancel(Cause.USER_RESTART)
        if self._ledger.history.user_restart or live.try_number != self._claim.try_number:
            self._next_layer = Layer.AIRFLOW

    def _layer(self) -> Layer:
        last = self._ledger.history.last
        if last is None:
            return Layer.FIRST
        if self._next_layer is not None:
            return self._next_layer
        same_try = last.try_number == self._claim.try_number
        return Layer.RELAUNCH if same_try else Layer.AIRFLOW

    def _submit_when_due(self) -> None:
        """Submit as a try begins; a relaunch within the try is left to what :meth:`poll` does."""
        layer, history = self._layer(), self._ledger.history
        relaunch = layer is Layer.RELAUNCH and may_relaunch(history, self._request.max_relaunches)
        if relaunch and history.last is not None:
            self._after(history.last)
        else:
            self._submit(layer)

    def _submit(self, layer: Layer) -> None:
        """Submit, unless the app before may live: then the next look tries again.

        A relaunch that the scheduler refuses is one of ``max_relaunches``, and the next one waits.
        """
        history, self._next_layer = self._ledger.history, layer
        if self._farewell.lingers():
            return
        last = history.last
        try:
            self._submitter.submit(layer)
        except LaunchError as error:
            if layer is not Layer.RELAUNCH or history.live is not None:
                raise
            log.warning("Job %s: a relaunch was refused: %s", self._job.log.key, error)
        finally:
            if history.last is not last:  # it was intended, whatever became of it
                self._next_layer = None
        if layer is Layer.RELAUNCH and history.live is not None and last is not None:
            self._tell_relaunch(last, history.live)
        self._pace.stir()

    def _tell_relaunch(self, last: Submission, new: Submission) -> None:
        log.info(
            "Job %s, submission %d ended with cause %s: %s Relaunched as %s, from cursor %d.",
            *(self._job.log.key, last.number, last.cause, last.evidence, new.app),
            new.resume_cursor,
        )

    @contextlib.contextmanager
    def _patiently(self) -> Iterator[None]:
        """Warn of a scheduler that cannot be asked now; the next look tries again."""
        try:
            yield
        except LaunchError as error:
            log.warning("Job %s: the scheduler could not be asked: %s", self._job.log.key, error)

    def _ask(self, submission: Submission) -> SchedulerStatus:
        try:
            if self._submitter.reached_scheduler(submission):
                return self._gateway.status(str(submission.handle))
            text = f"It has not had {submission.app} so far."
            return SchedulerStatus(state=None, message=text, answered=False)
        except LaunchError as error:
            log.warning("Job %s: the scheduler could not be asked: %s", self._job.log.key, error)
            return SchedulerStatus(state=None, message=str(error), answered=False)

    def _note_state(self, submission: Submission, status: SchedulerStatus) -> None:
        if not known(status):
            raw = status.raw or UNKNOWN
            status = replace(status, state=UNKNOWN, raw=raw, restart=submission.restart)
        if self._ledger.state(submission, status, self._log_of(submission)):
            self._pace.stir()
            if not known(status):
                log.warning(
                    "Job %s: the scheduler does not know %s", self._job.log.key, submission.app
                )
        conclude_runs(self._ledger, submission, status)

    def _log_of(self, submission: Submission) -> Callable[[], str | None]:
        def find() -> str | None:
            with contextlib.suppress(LaunchError):
                return self._gateway.log_location(str(submission.handle))
            return None

        return find

    def _enforce(self, live: Submission, status: SchedulerStatus) -> None:
        """Cancel what is overdue; tell the scheduler of a cancel that it has not heard of."""
        now_ns = self._now_ns()
        if self._limits.start_late(live, now_ns) and self._job.log.submission_events(live.number):
            live.started = True  # the scheduler is behind
        reason, text = Cause.TIMEOUT, None
        if live.cancel_reason is None:
            text = self._limits.overdue(live, status, now_ns)
            if text is None and status.hopeless:
                reason, text = Cause.LAUNCH, f"It cannot start. {status.message}"
        if text or (live.cancel_reason is not None and self._farewell.told != live.handle):
            with self._patiently():
                self.cancel(reason, text)

    def _end(self, submission: Submission, status: SchedulerStatus) -> Outcome | None:
        """Judge the attempt that is over; relaunch, or say how the try ended."""
        conclude_runs(self._ledger, submission, status, over=True)
        end = examine(self._job.log, submission, status, self._gateway, quote=self.quotes)
        self._ledger.check()  # reading the last lines of its output may have taken long
        if end.verdict.cause is Cause.VANISHED and submission.handle is not None:
            with contextlib.suppress(LaunchError):  # in case it lives where it cannot be seen
                self._farewell.tell(submission)
        self._ledger.attempt_ended(submission, end.verdict, end.attempt, end.cursor)
        self._pace.stir()
        return self._after(submission)

    def _after(self, last: Submission) -> Outcome | None:
        """The newest submission is over: relaunch when it is due, or say how the try ended."""
        history = self._ledger.history
        wanted = not history.user_restart or last.digest == self._submitter.digest
        if last.cause is None and (wanted or self._next_layer is None):
            self.close_job(JobState.SUCCEEDED, None)
            return self._outcome(last)
        due, now_ns = self._next_layer, self._now_ns()
        if due is None and not may_relaunch(history, self._request.max_relaunches):
            return self._outcome(last)
        if self._limits.late(now_ns):
            return self._outcome(last, late=True)
        if due is None and rested(history, now_ns):
            due = Layer.RELAUNCH
        if due is not None:
            self._submit(due)
        return None

    def _outcome(self, last: Submission, *, late: bool = False) -> Outcome:
        return conclude(self._job, self._ledger.history, last, late=late)
