"""What a job of Slurm's is in the words that all schedulers share. Pure.

==================================================================  =========  ===============
Slurm's word                                                        state      may come back
==================================================================  =========  ===============
PENDING, CONFIGURING, SUSPENDED, REQUEUED, REQUEUE_FED              PENDING
REQUEUE_HOLD, SPECIAL_EXIT, RESV_DEL_HOLD (somebody has to release  PENDING
it)
RUNNING, RESIZING, SIGNALING, STAGE_OUT, STOPPED                    RUNNING
COMPLETING                                                          RUNNING; PENDING when
                                                                    it was started again
COMPLETED                                                           SUCCEEDED
CANCELLED, REVOKED                                                  CANCELLED
FAILED, TIMEOUT, DEADLINE, OUT_OF_MEMORY, RECONFIG_FAIL             FAILED
PREEMPTED, NODE_FAIL, BOOT_FAIL, LAUNCH_FAILED                      FAILED     if requeued
anything else                                                       UNKNOWN
==================================================================  =========  ===============

Where a node cannot start a job (its Prolog fails), Slurm queues that again and holds it; one that
may not be queued again it kills. That is told as later releases call it, LAUNCH_FAILED, and not as
somebody's wish: such a job has nodes, and nothing that ran there has an exit code or a signal.

What is requeued shows its end for a moment. While its old run completes, it already counts the next
one: what completes then is taken for what waits, so that no run begins before it does, and how the
old one ended is told when it has. An end that
only the accounts know is final; a job that lives there alone was lost by slurmctld, and is not
known.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from airflow_ett.launch.schedulers.slurm.answers import Job
from airflow_ett.launch.schedulers.slurm.hostlist import expand
from airflow_ett.launch.status import TERMINAL_STATES, ReplicaStatus, SchedulerStatus

_STATES = {
    "PENDING": "PENDING CONFIGURING POWER_UP_NODE EXPEDITING SUSPENDED REQUEUED REQUEUE_FED "
    "REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD",
    "RUNNING": "RUNNING RESIZING SIGNALING STAGE_OUT STOPPED COMPLETING",
    "SUCCEEDED": "COMPLETED",
    "CANCELLED": "CANCELLED REVOKED",
    "FAILED": "FAILED TIMEOUT DEADLINE OUT_OF_MEMORY RECONFIG_FAIL PREEMPTED NODE_FAIL BOOT_FAIL "
    "LAUNCH_FAILED",
}
_BY_WORD = {word: state for state, words in _STATES.items() for word in words.split()}

_BOOTING = frozenset({"CONFIGURING", "POWER_UP_NODE"})

_RETURNING = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"})


def state_of(job: Job) -> str:
    """Return TorchX's name of the job's state."""
    if job.state == "COMPLETING" and job.restart:
        return "PENDING"
    return _BY_WORD.get(job.state, "UNKNOWN")


def status_of(job: Job, role: str, replicas: int, *, asked: bool = False) -> SchedulerStatus:
    """Return what is known of an app of one role that runs as this job.

    ``asked``: its end was asked for, which is how it failed, then.
    """
    if not asked and _unstarted(job):
        job = replace(job, state="LAUNCH_FAILED")
    state = state_of(job)
    if asked and job.state == "FAILED":
        state = "CANCELLED"
    over = state in TERMINAL_STATES
    if not job.queued and not over:
        message = f"slurmctld has lost job {job.id}, which its accounts still call {job.state}."
        return SchedulerStatus("UNKNOWN", "LOST", restart=job.restart, message=message)
    ran = job.state in _BOOTING or (bool(job.nodes) and state != "PENDING")
    return SchedulerStatus(
        state=state,
        raw=job.state,
        restart=job.restart,
        allocated_ns=_ns(job.begin_s) if ran else None,
        ended_ns=_ns(job.end_s) if over else None,
        replicas=_replicas(job, role, replicas, state),
        message=_message(job),
        reason=job.reason if state == "PENDING" else "",
        former="" if job.state == "COMPLETING" else job.former,
        may_return=job.state in _RETURNING and job.queued and job.requeue,
    )


def _unstarted(job: Job) -> bool:
    """Return whether Slurm has killed a job since its node could not start it."""
    killed = job.state == "CANCELLED" and bool(job.nodes) and job.queued and not job.requeue
    return killed and job.exit_code == 0 and job.signal is None


def _replicas(job: Job, role: str, count: int, state: str) -> tuple[ReplicaStatus, ...]:
    """Return one replica per node. How one ended is known where it is the only one."""
    told = count == 1 and job.state in ("COMPLETED", "FAILED")
    code, number = (job.exit_code, job.signal) if told else (None, None)
    hosts = itertools.chain(expand(job.nodes), itertools.repeat(None))
    return tuple(
        ReplicaStatus(role, replica, state, code, number, host)
        for replica, host in zip(range(count), hosts, strict=False)
    )


def _message(job: Job) -> str:
    place = f" on {job.nodes}" if job.nodes else ""
    return f"Slurm job {job.id}{place}" + (f": {job.reason}" if job.reason else "")


def _ns(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1_000_000_000
