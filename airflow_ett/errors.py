"""Every exception this package raises on purpose.

::

    EttError
    ├── ConfigurationError      a parameter or an option is wrong; names it
    ├── EventLogError           a log line or a job context that cannot be read
    ├── JobLogError             the job's log cannot be reached: submit and cancel nothing
    │   └── Fenced              a newer owner holds the job; stop and touch nothing
    ├── LaunchError             the scheduler refused or could not be asked
    ├── CheckpointError         a checkpoint is missing, incomplete or damaged
    ├── StoreError              the database is missing, old, new or away
    │   ├── StoreMismatch       it answers, but at another revision than this version needs
    │   └── StoreDamaged        it answers, but its tables are not what their revision makes
    ├── TokenError              a token for the API is forged, expired, or for something else
    ├── InitError               parts of a training's start-up failed; names each
    ├── PublishError            the model could not be published; nothing became visible
    ├── DemoError               the demo, or the Airflow it runs, cannot go on
    └── TrainingFailed          a job ended without success; carries the cause and its evidence
        └── EndedByUser         a user ended its task in Airflow

A message says what happened, to which job, attempt and replica, and what to do.
"""

from __future__ import annotations


class EttError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(EttError):
    """A parameter or an ``[ett]`` option is wrong.

    ``parameter`` is its name as the user wrote it.
    """

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter}: {problem}")
        self.parameter = parameter
        self.problem = problem


class EventLogError(EttError):
    """A log line or a job context cannot be read."""


class JobLogError(EttError):
    """The job's log cannot be reached. Keep watching; never submit, never cancel."""


class Fenced(JobLogError):
    """A newer owner has claimed the job; the older one stops and touches nothing."""


class LaunchError(EttError):
    """The scheduler refused a request or could not be asked."""


class CheckpointError(EttError):
    """A checkpoint is missing, incomplete or damaged."""


class StoreError(EttError):
    """The ETT database is missing, at another revision, or does not answer."""


class StoreMismatch(StoreError):
    """The ETT database answers, but its tables are missing, old or too new.

    ``found`` is the revision it is at (None without tables), ``needed`` the one this version needs.
    """

    def __init__(self, message: str, *, found: str | None, needed: str) -> None:
        super().__init__(message)
        self.found = found
        self.needed = needed


class StoreDamaged(StoreError):
    """The ETT database answers, but its tables are not what their revision makes.

    They were made by hand, changed, or restored in part. Nothing repairs them by itself.
    """


class TokenError(EttError):
    """A token for the API is missing, forged or expired, or ``forbidden``: for something else."""

    def __init__(self, problem: str, *, forbidden: bool = False) -> None:
        super().__init__(problem)
        self.forbidden = forbidden


class InitError(EttError):
    """Parts of a training's start-up failed; the message names each, the cause is the first."""


class PublishError(EttError):
    """A model could not be published. Nothing broken became visible in the registry.

    Where a whole version is visible there, and only its `latest` could not be moved, it says so.
    """


class DemoError(EttError):
    """The demo, or the Airflow that it runs, cannot go on."""


class TrainingFailed(EttError):
    """A training ended without success.

    ``cause`` is one of :class:`airflow_ett.events.Cause`; ``cursor`` is where it failed, if known.
    ``repeated``: the attempt before failed there with the same error, and nothing was saved since.
    """

    def __init__(
        self, message: str, *, cause: str, cursor: int | None = None, repeated: bool = False
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.cursor = cursor
        self.repeated = repeated


class EndedByUser(TrainingFailed):
    """A user ended the training's task in Airflow: no try follows, whatever the retry policy says.

    Not raised when the training was cancelled at its scheduler, whose cause is the same.
    """
