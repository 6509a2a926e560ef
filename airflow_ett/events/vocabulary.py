"""The words of the event log: kinds, causes, layers; ``docs/event-log.md`` explains them."""

from __future__ import annotations

from enum import StrEnum

SCHEMA_VERSION = 1


class Kind(StrEnum):
    """What an event tells. Logs may hold other kinds, too; readers keep and skip them."""

    # launcher
    JOB_OPENED = "job_opened"
    CLAIMED = "claimed"
    SUBMIT_INTENDED = "submit_intended"
    SUBMITTED = "submitted"
    ADOPTED = "adopted"
    SCHEDULER_STATE = "scheduler_state"
    CANCEL_REQUESTED = "cancel_requested"
    USER_RESTART = "user_restart"
    ATTEMPT_ENDED = "attempt_ended"
    JOB_ENDED = "job_ended"
    PUBLISHED = "published"
    AIRFLOW_STATE = "airflow_state"
    # agent and trainer
    PROCESS_STARTED = "process_started"
    SESSION_STARTED = "session_started"
    RESUMED = "resumed"
    PHASE_BEGIN = "phase_begin"
    PHASE_END = "phase_end"
    INTERVAL = "interval"
    CHECKPOINT_SAVED = "checkpoint_saved"
    CHECKPOINT_COMMITTED = "checkpoint_committed"
    COMPILE = "compile"
    LEVER = "lever"
    STALLED = "stalled"
    SIGNAL = "signal"
    FAILURE = "failure"
    SESSION_ENDED = "session_ended"
    PROCESS_ENDED = "process_ended"


class Cause(StrEnum):
    """Why an attempt or a job ended without success."""

    PREEMPTED = "preempted"
    INFRASTRUCTURE = "infrastructure"
    APPLICATION = "application"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    LAUNCH = "launch"
    VANISHED = "vanished"
    USER_CANCELLED = "user_cancelled"
    USER_RESTART = "user_restart"
    UNKNOWN = "unknown"


USER_CAUSES = frozenset({Cause.USER_CANCELLED, Cause.USER_RESTART})
"""Causes that are somebody's wish and no failure."""

RELAUNCH_CAUSES = frozenset({Cause.PREEMPTED, Cause.INFRASTRUCTURE})
"""Causes that are relaunched within the same Airflow try."""


class Layer(StrEnum):
    """Who began an attempt."""

    FIRST = "first"
    RELAUNCH = "relaunch"
    AIRFLOW = "airflow"
    SCHEDULER = "scheduler"
    ELASTIC = "elastic"


class JobState(StrEnum):
    """Where a job stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
