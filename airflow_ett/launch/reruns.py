"""How the runs of a submission ended that its scheduler has followed by others.

A scheduler that requeues an app starts another run of it within the same submission: an attempt of
its own, whose predecessor nobody else would judge.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_ett.events import AttemptId
from airflow_ett.launch.history import Submission
from airflow_ett.launch.joblog import JobLog
from airflow_ett.launch.ledger import Ledger
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.verdict import RAW_CAUSES, Sighting, Verdict, judge


def conclude(
    ledger: Ledger, submission: Submission, status: SchedulerStatus, *, over: bool = False
) -> None:
    """Write how the former runs ended, once each.

    That waits for the scheduler's word, which it may have said before or say only now, but no
    longer than until the next run has begun, or the submission is ``over``: what agents and
    trainers have told by then decides.
    """
    word = status.former or (submission.former if submission.former in RAW_CAUSES else None)
    if not (word or status.state == "RUNNING" or over):
        return
    for run in range(submission.runs_ended, submission.restart):
        attempt = AttemptId(submission.number, run)
        newest = run == submission.restart - 1
        hosts = submission.hosts.get(run, ())
        verdict, cursor = _judge(ledger.log, attempt, word if newest else None, hosts)
        ledger.run_ended(attempt, verdict, cursor)


def _judge(
    log: JobLog, attempt: AttemptId, word: str | None, hosts: Sequence[str | None]
) -> tuple[Verdict, int | None]:
    """Return how a run ended, and where its data position stood if that can still be read.

    An interval that its trainer left open is written, as at a submission's end.
    """
    told = log.submission_events(attempt.submission)
    record, cursor = log.cursor(), None
    if record is not None and record.attempt == attempt:
        cursor = record.cursor
        interval = record.open_interval(log.key.id)
        if interval is not None:
            log.copy(interval)
    seen = Sighting(
        state="FAILED",
        raw=word,
        message="" if word else "Its scheduler has started it again, and nobody told why.",
        replies=log.replies(attempt),
        hosts=hosts,
        events=[event for event in told if event.attempt == attempt],
    )
    return judge(seen), cursor
