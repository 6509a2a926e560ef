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
from typing import TYPE_CHECKING, Any

from airflow_ett.checkpoints import Checkpoint, newest_committed
from airflow_ett.config import JOB_VARIABLE
from airflow_ett.errors import LaunchError
from airflow_ett.events import (
    AttemptId,
    Cause,
    JobContext,
    JobState,
    Kind,
    Layer,
    read_cursor,
)
from airflow_ett.launch.adoption import Action, cleared, decide, may_relaunch
from airflow_ett.launch.aftermath import Outcome, close_interval, last_heartbeat_ns, newest_attempt
from airflow_ett.launch.history import History, Submission, fold
from airflow_ett.launch.joblog import Claim
from airflow_ett.launch.names import app_name
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.request import Request
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.verdict import Sighting, Verdict, judge

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway, Prepared

log = logging.getLogger(__name__)

UNKNOWN_GRACE_S = 60.0
"""How long a scheduler may not know or not answer before the trainer's own events decide."""

_BACKOFF_CAP_S = 30.0
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
        else:
            if not self._history.user_restart and cleared(self._history, **tries):
                self._log.append(Kind.USER_RESTART, {"try": self._claim.try_number})
            self._next_layer = Layer.AIRFLOW
            self.cancel(Cause.USER_RESTART)
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
        status = self._ask(live)
        if status.state is None or status.state == "UNKNOWN":
            if not self._given_up():
                return None
            status = SchedulerStatus(state=None)
        else:
            self._unknown_since_ns = None
            self._note_state(live, status)
        if status.state is None or status.terminal:
            return self._end(live, status)
        if self._deadline_ns is not None and self._now_ns() >= self._deadline_ns:
            self.cancel(Cause.TIMEOUT)
        return None

    def cancel(self, reason: Cause) -> None:
        """Ask the scheduler to end the live submission, if there is one; the log has it first."""
        self._log.check(self._claim)
        live = self._history.live
        if live is None:
            return
        if live.cancel_reason is None:
            self._note(Kind.CANCEL_REQUESTED, live, {"reason": reason})
            live.cancel_reason = reason
        if live.handle is None:
            live.handle = self._gateway.find(live.app, self._request.scheduler)
        if live.handle is not None:
            self._gateway.cancel(live.handle)

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
        last = self._history.last
        if last is None or last.handle is None:
            return ""
        mark = self._log.run_dir.launcher / f"stream-{last.number:04d}"
        with contextlib.suppress(OSError, ValueError, LaunchError):
            offset = int(mark.read_text()) if mark.exists() else 0
            text, end = self._gateway.read_log(last.handle, 0, offset)
            if end != offset:
                mark.write_text(str(end))
            return text
        return ""

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
        self._log.append(Kind.JOB_OPENED, opened)
        self._history.opened = opened

    def _layer(self) -> Layer:
        last = self._history.last
        if last is None:
            return Layer.FIRST
        if self._next_layer is not None:
            return self._next_layer
        same_try = last.try_number == self._claim.try_number
        return Layer.RELAUNCH if same_try else Layer.AIRFLOW

    def _prepare(self, submission: int) -> Prepared:
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
        prepared = self._prepare(number)
        newest = newest_committed(self._job.checkpoints)
        submission = Submission(
            number=number,
            app=app_name(self._log.key, number),
            digest=self._request.digest(),
            layer=layer,
            try_number=self._claim.try_number,
            intended_ns=0,
            resume_cursor=newest.cursor if newest and self._request.resume != "never" else 0,
        )
        intent = self._log.intend(self._claim, number, _fields(submission))
        submission.intended_ns = intent.time_ns
        self._history.submissions.append(submission)
        self._next_layer = None
        self._hand_over(submission, prepared)

    def _find_or_submit(self, submission: Submission) -> None:
        handle = self._gateway.find(submission.app, self._request.scheduler)
        if handle is None:
            self._hand_over(submission, self._prepare(submission.number))
        else:
            self._note_handle(submission, handle)

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
            {"submission": submission.number, "handle": handle, **_fields(submission)},
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
        silent_ns = min(now - self._unknown_since_ns, now - last_heartbeat_ns(self._log))
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
                events=events,
            )
        )
        self._note_end(submission, verdict, attempt)
        if verdict.cause is None:
            # Finished before the restart that a user or a deadline asked for: there is nothing left
            # to restart.
            self._next_layer = None
            self.close_job(JobState.SUCCEEDED, None)
        return self._after(submission)

    def _after(self, last: Submission) -> Outcome | None:
        """The newest submission is over: relaunch when it is due, or say how the try ended."""
        if self._next_layer is not None:
            self._submit(self._next_layer)
            return None
        if not may_relaunch(self._history, self._request.max_relaunches):
            return self._outcome(last)
        if self._now_ns() >= last.ended_ns + _backoff_ns(self._history.relaunches()):
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
            message=self._message(submission),
            handle=submission.handle,
            cursor=cursor.cursor if cursor else None,
            checkpoint=newest.uri if newest else None,
        )

    def _message(self, submission: Submission) -> str:
        """Say what happened to which job and submission, with the last lines of a failed one."""
        where = f"Job {self._log.key}, submission {submission.number} ({submission.handle})"
        if submission.cause is None or submission.handle is None:
            return f"{where}: {submission.evidence}"
        lines: list[str] = []
        with contextlib.suppress(LaunchError):
            lines = self._gateway.last_lines(submission.handle, 0, _LAST_LINES)
        tail = "".join(f"\n  {line}" for line in lines)
        return f"{where} ended, cause {submission.cause}: {submission.evidence}" + (
            f"\nLast lines of rank 0:{tail}" if tail else ""
        )


def _backoff_ns(relaunches: int) -> int:
    """The first relaunch is immediate; without progress 1, 2, 4 ... 30 s."""
    delay_s = 0.0 if relaunches == 0 else min(_BACKOFF_CAP_S, 2.0 ** (relaunches - 1))
    return int(delay_s * 1e9)


def _fields(submission: Submission) -> dict[str, Any]:
    return {
        "app": submission.app,
        "digest": submission.digest,
        "layer": submission.layer,
        "try": submission.try_number,
        "resume_cursor": submission.resume_cursor,
    }
