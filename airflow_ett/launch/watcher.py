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
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_ett.checkpoints import Checkpoint, newest_committed
from airflow_ett.config import JOB_VARIABLE
from airflow_ett.errors import LaunchError
from airflow_ett.events import AttemptId, Cause, JobContext, JobState, Kind, Layer, read_cursor
from airflow_ett.launch.adoption import Action, backoff_ns, cleared, decide, may_relaunch
from airflow_ett.launch.aftermath import (
    Outcome,
    close_interval,
    committed_cursor,
    describe,
    newest_attempt,
)
from airflow_ett.launch.history import History, Submission, apply, fold
from airflow_ett.launch.joblog import Claim
from airflow_ett.launch.names import app_name
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.request import Request
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.streaming import read_new
from airflow_ett.launch.verdict import Sighting, Verdict, judge

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway, Prepared

log = logging.getLogger(__name__)

UNKNOWN_GRACE_S = 60.0
"""How long a scheduler may not know or not answer before the trainer's own events decide."""

_LAST_LINES = 10


class Watcher:
    """Watches one job under one claim. Not thread-safe: call it from one thread at a time."""

    def __init__(
        self,
        job: OpenJob,
        claim: Claim,
        request: Request,
        gateway: Gateway,
        *,
        deadline_ns: int | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._job = job
        self._log = job.log
        self._claim = claim
        self._request = request
        self._gateway = gateway
        self._deadline_ns = deadline_ns
        self._now_ns = now_ns
        self._history = History()
        self._next_layer: Layer | None = None
        self._unknown_since_ns: int | None = None

    @property
    def handle(self) -> str | None:
        """The newest submission's handle."""
        last = self._history.last
        return last.handle if last else None

    def begin(self) -> Action:
        """Adopt, find, restart or submit; return what was done.

        Raises :class:`ConfigurationError` before anything is submitted, :class:`LaunchError` when
        the scheduler refuses.
        """
        own = f"launcher-{self._claim.epoch}"
        self._history = fold(e for e in self._log.launcher_events() if e.writer != own)
        self._log_lost_intents()
        tries = {"try_number": self._claim.try_number, "max_tries": self._claim.max_tries}
        action = decide(self._history, **tries, max_relaunches=self._request.max_relaunches)
        live = self._history.live
        if self._history.opened is None:
            self._open()
        if action is Action.REPORT:
            pass
        elif action is Action.SUBMIT or live is None:
            self._submit(self._layer())
        elif action is Action.FIND:
            self._find_or_submit(live)
        elif action is Action.ADOPT:
            self._note(Kind.ADOPTED, live, {"handle": live.handle, "try": self._claim.try_number})
        elif not self._reached_scheduler(live):
            self._begin_over(live)
        else:
            if not self._history.user_restart and cleared(self._history, **tries):
                self._log.append(Kind.USER_RESTART, {"try": self._claim.try_number})
            self.cancel(Cause.USER_RESTART)
            restart = live.cancel_reason is Cause.USER_RESTART
            if restart or live.try_number != self._claim.try_number:
                self._next_layer = Layer.AIRFLOW
        return action

    def poll(self) -> Outcome | None:
        """Look once; return the outcome when the try is over.

        Raises :class:`Fenced` when a newer owner watches, :class:`JobLogError` while the log is
        away.
        """
        self._log.check(self._claim)
        live, last = self._history.live, self._history.last
        if last is not None and live is None:
            return self._after(last)
        if live is None:
            return None
        if self._late() and live.cancel_reason is None:
            self.cancel(Cause.TIMEOUT)
        status = self._ask(live)
        if status.state is None or status.state == "UNKNOWN":
            if not self._given_up():
                return None
            status = SchedulerStatus(state=None)
        else:
            self._unknown_since_ns = None
            self._note_state(live, status)
        return self._end(live, status) if status.state is None or status.terminal else None

    def cancel(self, reason: Cause) -> None:
        """Ask the scheduler to end the live submission, if there is one; the log has it first."""
        self._log.check(self._claim)
        live = self._history.live
        if live is None:
            return
        if live.cancel_reason is None:
            self._note(Kind.CANCEL_REQUESTED, live, {"reason": reason})
            live.cancel_reason = reason
        if self._reached_scheduler(live):
            self._gateway.cancel(str(live.handle))

    def user_cancel(self, wait_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """A user ended the task: cancel, wait a little for the end, and close the job."""
        self.cancel(Cause.USER_CANCELLED)
        limit = self._now_ns() + int(wait_s * 1e9)
        while self._history.live is not None and self._now_ns() < limit:
            if self.poll() is not None:
                break
            sleep(0.2)
        self.close_job(JobState.CANCELLED, Cause.USER_CANCELLED)

    def user_restart(self) -> None:
        """A user cleared the running task: say so and cancel; the next try submits and resumes."""
        self._log.check(self._claim)
        self._log.append(Kind.USER_RESTART, {"try": self._claim.try_number})
        self.cancel(Cause.USER_RESTART)

    def close_job(self, state: JobState, cause: Cause | None) -> None:
        """Write the job's terminal event, once; from then on its result is frozen."""
        if self._history.ended is None:
            self._log.append(Kind.JOB_ENDED, {"state": state, "cause": cause})
            self._history.ended = state

    def read_log(self) -> str:
        """Return what rank 0 has printed since the last call, in whichever process that was."""
        return read_new(self._log, self._gateway, self._history.last)

    def _begin_over(self, intent: Submission) -> None:
        """A submission to be restarted that never reached the scheduler: nothing ran."""
        if intent.cancel_reason is None:
            self._hand_over(intent, self._prepare(intent.number, intent.resume_cursor))
            return
        text = "It was cancelled before the scheduler had it."
        self._note_end(intent, Verdict(intent.cancel_reason, {"source": "launcher", "text": text}))
        self._submit(self._layer())

    def _late(self) -> bool:
        return self._deadline_ns is not None and self._now_ns() >= self._deadline_ns

    def _log_lost_intents(self) -> None:
        """Log the submissions whose maker died between intending and logging them."""
        logged = {submission.number for submission in self._history.submissions}
        for number, intent in self._log.intents().items():
            if number not in logged:
                fields = {name: value for name, value in intent.items() if name != "epoch"}
                event = self._log.append(Kind.SUBMIT_INTENDED, {"submission": number, **fields})
                apply(self._history, event)

    def _reached_scheduler(self, submission: Submission) -> bool:
        """Return whether the scheduler has the app, looking it up by name where that is unknown."""
        if submission.handle is None:
            handle = self._gateway.find(submission.app, self._request.scheduler)
            if handle is None:
                return False
            self._note_handle(submission, handle)
        return True

    def _open(self) -> None:
        key = self._log.key
        prepared = self._prepare(1)
        opened = {
            "key": {name: getattr(key, name) for name in key.__slots__},
            "scheduler": self._request.scheduler,
            "component": self._request.component,
            "accelerators": self._gateway.accelerators(prepared),
            "inherit": dict(self._job.inherit) if self._job.inherit else None,
        }
        apply(self._history, self._log.append(Kind.JOB_OPENED, opened))

    def _layer(self) -> Layer:
        last = self._history.last
        if last is None:
            return Layer.FIRST
        if self._next_layer is not None:
            return self._next_layer
        same_try = last.try_number == self._claim.try_number
        return Layer.RELAUNCH if same_try else Layer.AIRFLOW

    def _prepare(self, submission: int, resume_cursor: int = 0) -> Prepared:
        request, inherit = self._request, self._job.inherit or {}
        context = JobContext(
            key=self._log.key,
            submission=submission,
            run_dir=str(self._log.run_dir.path),
            checkpoints=self._job.checkpoints,
            epoch=self._claim.epoch,
            resume=request.resume,
            inherit=inherit.get("checkpoint"),
            init_from=request.init_from,
            hwm=int(inherit.get("hwm") or 0),
            resume_cursor=resume_cursor,
        )
        return self._gateway.prepare(
            component=request.component,
            component_args=list(request.component_args),
            scheduler=request.scheduler,
            cfg=dict(request.cfg),
            env={**request.env, JOB_VARIABLE: context.encode()},
            resource=request.resource,
        )

    def _submit(self, layer: Layer) -> None:
        last = self._history.last
        number = last.number + 1 if last else 1
        cursor = committed_cursor(self._log, self._job.checkpoints, last)
        prepared = self._prepare(number, cursor)
        submission = Submission(
            number=number,
            app=app_name(self._log.key, number, self._history.opened_ns),
            digest=self._request.digest(),
            layer=layer,
            try_number=self._claim.try_number,
            intended_ns=0,
            resume_cursor=cursor,
        )
        intent = self._log.intend(self._claim, number, submission.fields())
        submission.intended_ns = intent.time_ns
        self._history.submissions.append(submission)
        self._next_layer = None
        self._hand_over(submission, prepared)

    def _find_or_submit(self, submission: Submission) -> None:
        if not self._reached_scheduler(submission):
            prepared = self._prepare(submission.number, submission.resume_cursor)
            self._hand_over(submission, prepared)

    def _hand_over(self, submission: Submission, prepared: Prepared) -> None:
        """Give the app to the scheduler; a refusal ends the attempt and is raised."""
        self._log.check(self._claim)
        try:
            handle = self._gateway.submit(prepared, submission.app)
        except LaunchError as error:
            self._note_end(
                submission, Verdict(Cause.LAUNCH, {"source": "scheduler", "text": str(error)})
            )
            raise
        self._note_handle(submission, handle)

    def _note_handle(self, submission: Submission, handle: str) -> None:
        submission.handle = handle
        self._log.append(
            Kind.SUBMITTED,
            {"submission": submission.number, "handle": handle, **submission.fields()},
            time_ns=submission.intended_ns,
            attempt=AttemptId(submission.number),
        )

    def _ask(self, submission: Submission) -> SchedulerStatus:
        try:
            if submission.handle is None:
                self._find_or_submit(submission)
            return self._gateway.status(str(submission.handle))
        except LaunchError as error:
            log.warning("Job %s: the scheduler could not be asked: %s", self._log.key, error)
            return SchedulerStatus(state=None, message=str(error))

    def _given_up(self) -> bool:
        """Return whether scheduler and heartbeat have both been silent for the grace period."""
        now = self._now_ns()
        if self._unknown_since_ns is None:
            self._unknown_since_ns = now
            log.warning("Job %s: the scheduler does not know %s", self._log.key, self.handle)
        silent_ns = min(now - self._unknown_since_ns, now - (self._log.run_dir.heartbeat_ns() or 0))
        return silent_ns >= UNKNOWN_GRACE_S * 1e9

    def _note_state(self, submission: Submission, status: SchedulerStatus) -> None:
        restart = max(status.restart, 0)
        if (submission.raw, submission.restart) == (status.raw, restart):
            return
        submission.raw, submission.restart = status.raw, restart
        times = ("allocated_ns", "started_ns", "ended_ns")
        self._note(
            Kind.SCHEDULER_STATE,
            submission,
            {"raw": status.raw, "state": status.state, "restart": restart}
            | {name: getattr(status, name) for name in times if getattr(status, name)},
        )

    def _end(self, submission: Submission, status: SchedulerStatus) -> Outcome | None:
        """Judge the attempt that is over; relaunch, or say how the try ended."""
        attempt, events = newest_attempt(self._log, submission)
        close_interval(self._log, submission)
        verdict = judge(
            Sighting(
                state=status.state,
                raw=status.raw,
                message=status.message,
                cancel_reason=submission.cancel_reason,
                replies=self._log.replies(attempt),
                replicas=status.replicas,
                events=events,
            )
        )
        if verdict.cause is Cause.VANISHED and submission.handle is not None:
            with contextlib.suppress(LaunchError):  # in case it lives where it cannot be seen
                self._gateway.cancel(submission.handle)
        self._note_end(submission, verdict, attempt)
        return self._after(submission)

    def _after(self, last: Submission) -> Outcome | None:
        """The newest submission is over: relaunch when it is due, or say how the try ended."""
        if last.cause is None:
            self.close_job(JobState.SUCCEEDED, None)
            return self._outcome(last)
        if self._next_layer is not None:
            self._submit(self._next_layer)
            return None
        if not may_relaunch(self._history, self._request.max_relaunches):
            return self._outcome(last)
        if self._late():
            return replace(self._outcome(last), cause=Cause.TIMEOUT)
        if self._now_ns() >= last.ended_ns + backoff_ns(self._history.relaunches()):
            self._submit(Layer.RELAUNCH)
        return None

    def _note(self, kind: Kind, submission: Submission, data: dict[str, Any]) -> None:
        attempt = AttemptId(submission.number, submission.restart)
        self._log.append(kind, {"submission": submission.number, **data}, attempt=attempt)

    def _note_end(
        self, submission: Submission, verdict: Verdict, attempt: AttemptId | None = None
    ) -> None:
        event = self._log.append(
            Kind.ATTEMPT_ENDED,
            {"cause": verdict.cause, "evidence": dict(verdict.evidence)},
            time_ns=self._now_ns(),
            attempt=attempt or AttemptId(submission.number, submission.restart),
        )
        submission.note_end(event)

    def _outcome(self, submission: Submission) -> Outcome:
        newest: Checkpoint | None = newest_committed(self._job.checkpoints)
        cursor = read_cursor(self._log.run_dir.cursor)
        return Outcome(
            job=self._log.key.id,
            cause=submission.cause,
            message=describe(self._log.key, submission, self._last_lines(submission)),
            handle=submission.handle,
            cursor=cursor.cursor if cursor else None,
            checkpoint=newest.uri if newest else None,
        )

    def _last_lines(self, submission: Submission) -> list[str]:
        if submission.cause is not None and submission.handle is not None:
            with contextlib.suppress(LaunchError):
                return self._gateway.last_lines(submission.handle, 0, _LAST_LINES)
        return []
