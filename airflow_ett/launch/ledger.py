"""What one claim writes of its job: each word goes into the log first, then into the history."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from airflow_ett.events import AttemptId, Cause, JobState, Kind
from airflow_ett.launch.history import History, Submission, apply, fold
from airflow_ett.launch.joblog import Claim, JobLog
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.verdict import Verdict


class Ledger:
    """The launcher's side of a job's log under one claim, with the history that follows from it."""

    def __init__(
        self, joblog: JobLog, claim: Claim, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.log = joblog
        self.claim = claim
        self.now_ns = now_ns
        self.history = History()

    def recall(self) -> None:
        """Read what happened before this claim; log the intents that only their files tell of."""
        own = f"launcher-{self.claim.epoch}"
        self.history = fold(e for e in self.log.launcher_events() if e.writer != own)
        logged = {submission.number for submission in self.history.submissions}
        for number, intent in self.log.intents().items():
            if number not in logged:
                fields = {name: value for name, value in intent.items() if name != "epoch"}
                self._tell(Kind.SUBMIT_INTENDED, {"submission": number, **fields})

    def check(self) -> None:
        """Raise ``Fenced`` when a newer owner has claimed the job."""
        self.log.check(self.claim)

    def opened(self, data: dict[str, Any]) -> None:
        """Write the job's first word."""
        self._tell(Kind.JOB_OPENED, data)

    def intended(self, submission: Submission) -> Submission:
        """Write that the scheduler is about to be asked; return the submission as it is known."""
        fields = submission.fields()
        apply(self.history, self.log.intend(self.claim, submission.number, fields))
        return self.history.submissions[-1]

    def handed_over(self, submission: Submission, handle: str) -> None:
        """Write under which handle the scheduler has the app."""
        data = {"submission": submission.number, "handle": handle, **submission.fields()}
        self._tell(
            Kind.SUBMITTED,
            {**data, "handed_ns": self.now_ns()},
            submission,
            time_ns=submission.intended_ns,
        )

    def adopted(self, submission: Submission) -> None:
        """Write that this try goes on with a former one's submission."""
        data = {"handle": submission.handle, "try": self.claim.try_number}
        self._tell(Kind.ADOPTED, data, submission)

    def state(
        self, submission: Submission, status: SchedulerStatus, log: Callable[[], str | None]
    ) -> bool:
        """Write the scheduler's word where it has changed; return whether it has.

        ``log`` is asked then for the place of rank 0's output.
        """
        restart = submission.restart if status.restart < 0 else status.restart
        settled = status.state != "PENDING" and bool(status.hosts)
        moved = settled and status.hosts != submission.hosts.get(restart)
        known = submission.raw, submission.restart, submission.reason
        if known == (status.raw, restart, status.reason) and not moved:
            return False
        times = ("allocated_ns", "started_ns", "ended_ns")
        told: dict[str, Any] = {n: value for n in times if (value := getattr(status, n))}
        if status.reason:
            told["reason"] = status.reason
        if moved:
            told["hosts"] = list(status.hosts)
        data = {"raw": status.raw, "state": status.state, "restart": restart, **told, "log": log()}
        self._tell(Kind.SCHEDULER_STATE, data, submission, restart=restart, time_ns=self.now_ns())
        return True

    def cancel_requested(self, submission: Submission, reason: Cause, text: str | None) -> None:
        """Write that the scheduler is about to be asked for the app's end."""
        why = {"text": text} if text else {}
        self._tell(Kind.CANCEL_REQUESTED, {"reason": reason, **why}, submission)

    def user_restart(self) -> None:
        """Write that a user wants the job begun over: a cleared task, a run made again."""
        self._tell(Kind.USER_RESTART, {"try": self.claim.try_number})

    def attempt_ended(
        self,
        submission: Submission,
        verdict: Verdict,
        attempt: AttemptId | None = None,
        cursor: int | None = None,
    ) -> None:
        """Write how the newest attempt of a submission ended, and at which cursor if known."""
        event = self.log.append(
            Kind.ATTEMPT_ENDED,
            {"cause": verdict.cause, "evidence": dict(verdict.evidence), "cursor": cursor},
            time_ns=self.now_ns(),
            attempt=attempt or AttemptId(submission.number, submission.restart),
        )
        submission.note_end(event)

    def run_ended(self, attempt: AttemptId, verdict: Verdict, cursor: int | None) -> None:
        """Write how a run ended that the scheduler has followed by another."""
        data = {"cause": verdict.cause, "evidence": dict(verdict.evidence), "cursor": cursor}
        event = self.log.append(Kind.ATTEMPT_ENDED, data, time_ns=self.now_ns(), attempt=attempt)
        apply(self.history, event)

    def job_ended(self, state: JobState, cause: Cause | None, *, heard: bool = True) -> None:
        """Write the job's terminal event, once; from then on its result is frozen.

        ``heard`` is False where the task fails all the same: a success is left to its next try.
        """
        if self.history.ended is None:
            left = {} if heard or state is not JobState.SUCCEEDED else {"unheard": True}
            self._tell(Kind.JOB_ENDED, {"state": state, "cause": cause, **left})

    def _tell(
        self,
        kind: Kind,
        data: dict[str, Any],
        submission: Submission | None = None,
        *,
        restart: int | None = None,
        time_ns: int | None = None,
    ) -> None:
        attempt = None
        if submission is not None:
            run = submission.restart if restart is None else restart
            attempt = AttemptId(submission.number, run)
            data = {"submission": submission.number, **data}
        apply(self.history, self.log.append(kind, data, time_ns=time_ns, attempt=attempt))
