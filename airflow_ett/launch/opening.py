"""Find or begin the job of a task instance: its generation, its place, what it inherits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_ett.checkpoints import Checkpoint, newest_committed
from airflow_ett.errors import ConfigurationError, JobLogError
from airflow_ett.events import JobKey, JobState
from airflow_ett.launch.adoption import cleared
from airflow_ett.launch.former import Former
from airflow_ett.launch.history import History, fold
from airflow_ett.launch.joblog import JobLog
from airflow_ett.launch.root import Root


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job ready to be claimed: its log, its checkpoints, and what a former generation left it.

    ``former`` is an app of the former generation that must be over before this one begins; what it
    leaves is known only then, by opening the job again. ``checkpoints`` is empty where nobody
    knows. ``token`` makes the secret by which its trainers reach a log that they do not see.
    """

    log: JobLog
    checkpoints: str
    inherit: Mapping[str, Any] | None
    former: Former | None = None
    token: Callable[[], str] | None = None

    def newest(self) -> Checkpoint | None:
        """Return the newest committed checkpoint, None where none is known.

        Raises :class:`JobLogError` where that cannot be told: nothing may be submitted then.
        """
        try:
            return newest_committed(self.checkpoints) if self.checkpoints else None
        except OSError as error:
            raise JobLogError(
                f"The checkpoints of job {self.log.key} cannot be looked at: {error}. Check that "
                f"this process sees {self.checkpoints}."
            ) from error


def open_job(
    root: Root,
    key: JobKey,
    *,
    checkpoint_root: str,
    try_number: int,
    max_tries: int,
    begun: bool = True,
) -> OpenJob:
    """Return the newest generation of ``key``'s task instance that has not ended, or a new one.

    A job that ended well is returned once more to a plain retry: Airflow did not hear of its end,
    and only a clear (which raises ``max_tries``) begins a new generation; after a success that came
    as its task failed, not even that. Not so when this DAG run has not ``begun`` the job: it was
    deleted and made again, and the success is another run's.

    ``key.generation`` is ignored. ``checkpoint_root`` may be empty: then checkpoints live in the
    run directory, if it is one. After a failure or a cancel the next generation inherits the newest
    committed checkpoint and the high-water mark; after success it starts from scratch.

    Raises :class:`ConfigurationError` when a folder cannot be written, :class:`JobLogError` when
    the root cannot be read.
    """
    if root.folder is not None:
        try:
            (root.folder / key.base).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(root.option, f"cannot be written: {error}") from error
    job, history = _look(root, key, max(1, root.newest_generation(key)), checkpoint_root)
    number = job.log.key.generation
    if history.opened is None and number > 1:  # its launcher ended before its first word
        return _following(job, *_look(root, key, number - 1, checkpoint_root))
    succeeded = history.ended is JobState.SUCCEEDED
    anew = cleared(history, try_number=try_number, max_tries=max_tries) and not history.unheard
    unheard = succeeded and begun and not anew
    if history.ended is None or (unheard and try_number > history.try_number):
        return job
    return _following(_open(root, key, number + 1, checkpoint_root), job, history)


def _open(root: Root, key: JobKey, generation: int, checkpoint_root: str) -> OpenJob:
    log = root.log(replace(key, generation=generation))
    checkpoints = f"{log.place}/checkpoints" if root.folder is not None else ""
    if checkpoint_root:
        checkpoints = f"{checkpoint_root.rstrip('/')}/{log.key.path}"
    return OpenJob(log, checkpoints, None)


def _look(
    root: Root, key: JobKey, generation: int, checkpoint_root: str
) -> tuple[OpenJob, History]:
    """Return a generation's job and what has happened to it."""
    job = _open(root, key, generation, checkpoint_root)
    history = fold(job.log.launcher_events())
    return replace(job, inherit=(history.opened or {}).get("inherit")), history


def _following(job: OpenJob, before: OpenJob, history: History) -> OpenJob:
    """Return a job with what it inherits from the generation before it."""
    return replace(job, inherit=_inheritance(history, before), former=_former(history))


def _former(history: History) -> Former | None:
    last = history.unfinished
    if last is None:
        return None
    scheduler = str((history.opened or {}).get("scheduler"))
    return Former(last.app, last.handle, scheduler, last.app_id)


def _inheritance(history: History, job: OpenJob) -> dict[str, Any] | None:
    if history.ended is JobState.SUCCEEDED:
        return None
    former: Mapping[str, Any] = (history.opened or {}).get("inherit") or {}
    newest, cursor = job.newest(), job.log.cursor()
    return {
        "checkpoint": newest.uri if newest else former.get("checkpoint"),
        "hwm": max(cursor.hwm if cursor else 0, int(former.get("hwm") or 0)),
    }
