"""How long a job is waited for. Pure; every instant follows from the job's log.

Whichever process watches, and however often it starts again, the instants stay the same: the try's
deadline travels with the hold, a submission's start is counted from its hand-over to the scheduler,
the scheduler's silence from the event that noted it.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_ett.launch.history import UNKNOWN, Submission
from airflow_ett.launch.status import SchedulerStatus

UNKNOWN_GRACE_S = 60.0

SETTLE_S = 10.0
"""How long a failure must stand that may be a preempted app on its way back into the queue."""


def known(status: SchedulerStatus) -> bool:
    """Return whether the scheduler has said anything about the app."""
    return status.state not in (None, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Limits:
    """``deadline_ns`` is when the try is to be over (UTC nanoseconds), None for never.

    ``start_timeout_s`` lies between a submission's hand-over and its first process, None for no
    limit; for ``unknown_grace_s`` a scheduler may not know the app, or not answer, before the
    trainer's own events decide.
    """

    deadline_ns: int | None = None
    start_timeout_s: float | None = None
    unknown_grace_s: float = UNKNOWN_GRACE_S

    def late(self, now_ns: int) -> bool:
        """Return whether the try's deadline has passed."""
        return self.deadline_ns is not None and now_ns >= self.deadline_ns

    def start_late(self, submission: Submission, now_ns: int) -> bool:
        """Return whether a submission that nobody has seen running should have started by now."""
        return (
            self.start_timeout_s is not None
            and submission.handle is not None
            and not submission.started
            and now_ns >= submission.handed_ns + int(self.start_timeout_s * 1e9)
        )

    def overdue(self, submission: Submission, status: SchedulerStatus, now_ns: int) -> str | None:
        """Return why a submission is to be cancelled, in a sentence; None while it is not.

        A scheduler that does not answer may have started the app: silence is never a late start.
        """
        word = status.raw or status.state or "nothing"
        said = f"the scheduler last said {word}" + (f": {status.message}" if status.message else "")
        if self.late(now_ns):
            return f"Not over at the deadline that execution_timeout sets; {said}."
        waits = known(status) and status.state != "RUNNING"
        if waits and self.start_late(submission, now_ns):
            waited_s = (now_ns - submission.handed_ns) / 1e9
            return (
                f"Not started {waited_s:.0f} s after it was submitted "
                f"(start_timeout {self.start_timeout_s:g} s); {said}."
            )
        return None

    def settled(self, submission: Submission, status: SchedulerStatus, now_ns: int) -> bool:
        """Return whether a terminal state that the log has noted counts.

        One from which the scheduler may start the app again by itself counts only once it has stood
        for :data:`SETTLE_S`, unless the app's end was asked for, or the try is to be over. A clock
        that was put back since makes it count at once.
        """
        if not status.may_return or submission.cancel_reason is not None or self.late(now_ns):
            return True
        return not 0 <= now_ns - submission.told_ns < int(SETTLE_S * 1e9)

    def forgotten(self, submission: Submission, now_ns: int, heartbeat_ns: int | None) -> bool:
        """Return whether scheduler and agents have both been silent for the grace period.

        An agent's clock may go ahead a little; otherwise what lies ahead is past, as in
        :meth:`settled`.
        """
        since_ns, grace_ns = submission.unknown_since_ns, int(self.unknown_grace_s * 1e9)
        if since_ns is None or 0 <= now_ns - since_ns < grace_ns:
            return False
        return heartbeat_ns is None or abs(now_ns - heartbeat_ns) >= grace_ns
