"""One question for all watched jobs of a cluster, whoever asks, and a short memory of the answer.

``squeue --me`` tells of all of a user's jobs that slurmctld still has, in one request to it. Of
those watched jobs alone that it has no more (after ``MinJobAge``, 300 s), or has started again,
``sacct`` is asked, in one request, too, and not again about an end that it has told. Safe to use
from several threads: those that ask meanwhile wait for the answer that is under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.slurm.answers import (
    Job,
    read_sacct,
    read_squeue,
    sacct_argv,
    squeue_argv,
)
from airflow_ett.launch.schedulers.slurm.states import state_of
from airflow_ett.launch.schedulers.slurm.transport import Commands
from airflow_ett.launch.status import TERMINAL_STATES

FRESH_S = 1.0
"""So old an answer may be."""

WATCHED_S = 600.0
"""A job that nobody has asked for since is not asked for with the others."""

NO_ACCOUNTS = "accounting storage is disabled"
"""What ``sacct`` says, and ends with 1, where a cluster keeps no accounts."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """When it was asked for, after which changes, for which jobs, and what came of it.

    ``away`` is why slurmctld could not be asked, ``unaccounted`` why the accounts could not.
    """

    time_s: float
    changes: int
    asked: frozenset[int]
    jobs: Mapping[int, Job]
    away: LaunchError | None = None
    unaccounted: LaunchError | None = None


class Asking:
    """Asks one cluster."""

    def __init__(self, transport: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._asking = threading.Lock()
        self._watched: dict[int, float] = {}
        self._ended: dict[int, Job] = {}
        self._former: dict[tuple[int, str, int], str] = {}
        self._answer: _Answer | None = None
        self._changes = 0

    def job(self, job_id: int) -> Job | None:
        """Return a job, None where the cluster does not know it (any more).

        Raises :class:`LaunchError` where it cannot be asked.
        """
        answer = self._fresh(job_id)
        if job_id not in answer.jobs and answer.unaccounted is not None:
            raise LaunchError(str(answer.unaccounted))
        return answer.jobs.get(job_id)

    def named(self, name: str) -> Job | None:
        """Return the newest job of this name that slurmctld still has; none that it refused.

        Raises :class:`LaunchError` where it cannot be asked.
        """
        jobs = self._fresh(None).jobs.values()
        found = [job for job in jobs if job.name == name and job.queued and not job.refused]
        return max(found, key=lambda job: job.id, default=None)

    def forget(self) -> None:
        """Have the next question asked anew: something has just been changed.

        An answer that is under way may tell of the time before.
        """
        self._changes += 1

    def accounted(self, *which: str) -> list[Job]:
        """Return what the accounts say of jobs; nothing where the cluster keeps none.

        Raises :class:`LaunchError` where they cannot be asked.
        """
        result = self._transport.run(sacct_argv(*which))
        if result.code and NO_ACCOUNTS in result.err:
            return []
        if result.code:
            raise LaunchError(f"sacct failed: {result.err.strip() or result.code}")
        return read_sacct(result.out)

    def _fresh(self, job_id: int | None) -> _Answer:
        # An answer may take longer than it stays fresh, and many may wait for it.
        since_s, changes = self._clock(), self._changes
        with self._asking:
            if job_id is not None:
                self._watched[job_id] = self._clock()
            answer = self._answer
            if answer is None or not _serves(answer, job_id, since_s, changes):
                answer = self._answer = self._ask()
        if answer.away is not None:
            raise LaunchError(str(answer.away))
        return answer

    def _ask(self) -> _Answer:
        now_s, changes = self._clock(), self._changes
        self._watched = {
            job: asked_s for job, asked_s in self._watched.items() if now_s - asked_s < WATCHED_S
        }
        watched = frozenset(self._watched)
        self._ended = {job: found for job, found in self._ended.items() if job in watched}
        try:
            queued = self._queued()
        except LaunchError as error:
            return _Answer(now_s, changes, watched, {}, away=error)
        for job_id in self._ended.keys() & queued.keys():  # numbers come again
            del self._ended[job_id]
        missing = watched - queued.keys() - self._ended.keys()
        again = {job for job in watched & queued.keys() if self._owes(queued[job])}
        told: dict[int, Job] = {}
        unaccounted = None
        if missing or again:
            which = f"--jobs={','.join(map(str, sorted(missing | again)))}"
            try:
                told = {job.id: job for job in self.accounted(which)}
            except LaunchError as error:
                unaccounted = error
        for job_id in again:
            self._note_former(queued[job_id], told.get(job_id))
        lost = {job_id: told[job_id] for job_id in missing & told.keys()}
        self._ended |= {job.id: job for job in lost.values() if state_of(job) in TERMINAL_STATES}
        jobs = {**self._ended, **lost, **self._with_former(queued.values())}
        return _Answer(now_s, changes, watched, jobs, unaccounted=unaccounted)

    def _queued(self) -> dict[int, Job]:
        result = self._transport.run(squeue_argv())
        if result.code:
            raise LaunchError(f"squeue failed: {result.err.strip() or result.code}")
        return {job.id: job for job in read_squeue(result.out)}

    def _owes(self, job: Job) -> bool:
        """Return whether it is still to be asked how the run before a job's newest ended."""
        return job.restart > 0 and (job.id, job.name, job.restart) not in self._former

    def _note_former(self, job: Job, told: Job | None) -> None:
        """Keep how the run before a job's newest ended.

        The accounts may lag behind; once the next run has begun, they have nothing more to add.
        """
        word = ""
        if told is not None and told.name == job.name:  # numbers come again
            if told.restart == job.restart:
                word = told.former
            elif told.restart == job.restart - 1 and told.end_s is not None:
                word = told.state
        if word or job.state == "RUNNING":
            self._former[job.id, job.name, job.restart] = word

    def _with_former(self, queued: Iterable[Job]) -> dict[int, Job]:
        former = self._former
        return {
            job.id: replace(job, former=former.get((job.id, job.name, job.restart), ""))
            for job in queued
        }


def _serves(answer: _Answer, job_id: int | None, since_s: float, changes: int) -> bool:
    """Tell whether an answer is one to what was asked at ``since_s``, after so many changes."""
    about = job_id is None or job_id in answer.asked or job_id in answer.jobs
    return about and since_s - answer.time_s < FRESH_S and answer.changes >= changes
