"""Find or begin the job of a task instance: its generation, its run directory, what it inherits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import newest_committed
from airflow_ett.errors import ConfigurationError
from airflow_ett.events import JobKey, JobState, RunDir
from airflow_ett.launch.adoption import cleared
from airflow_ett.launch.former import Former
from airflow_ett.launch.history import History, fold
from airflow_ett.launch.joblog import JobLog
from airflow_ett.launch.rundirlog import RunDirLog, newest_generation


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job ready to be claimed: its log, its checkpoints, and what a former generation left it.

    ``former`` is an app of the former generation that must be over before this one begins; what it
    leaves is known only then, by opening the job again.
    """

    log: JobLog
    checkpoints: str
    inherit: Mapping[str, Any] | None
    former: Former | None = None


def open_job(
    run_root: Path,
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
    run directory. After a failure or a cancel the next generation inherits the newest committed
    checkpoint and the high-water mark; after success it starts from scratch.

    Raises :class:`ConfigurationError` when the run root cannot be written, :class:`JobLogError`
    when it cannot be read.
    """
    try:
        (run_root / key.base).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError("[ett] run_root", f"cannot be written: {error}") from error
    key = replace(key, generation=max(1, newest_generation(run_root, key)))
    log = RunDirLog(RunDir(run_root / key.path), key)
    history = fold(log.launcher_events())
    checkpoints = _checkpoint_folder(checkpoint_root, log)
    succeeded = history.ended is JobState.SUCCEEDED
    anew = cleared(history, try_number=try_number, max_tries=max_tries) and not history.unheard
    unheard = succeeded and begun and not anew
    if history.ended is None or (unheard and try_number > history.try_number):
        return OpenJob(log, checkpoints, (history.opened or {}).get("inherit"))
    following = replace(key, generation=key.generation + 1)
    new_log = RunDirLog(RunDir(run_root / following.path), following)
    return OpenJob(
        new_log,
        _checkpoint_folder(checkpoint_root, new_log),
        _inheritance(history, log, checkpoints),
        _former(history),
    )


def _former(history: History) -> Former | None:
    last = history.unfinished
    if last is None:
        return None
    return Former(last.app, last.handle, str((history.opened or {}).get("scheduler")))


def _checkpoint_folder(root: str, log: RunDirLog) -> str:
    if not root:
        return str(log.run_dir.checkpoints)
    return f"{root.rstrip('/')}/{log.key.path}"


def _inheritance(history: History, log: JobLog, checkpoints: str) -> dict[str, Any] | None:
    if history.ended is JobState.SUCCEEDED:
        return None
    former: Mapping[str, Any] = (history.opened or {}).get("inherit") or {}
    newest = newest_committed(checkpoints)
    cursor = log.cursor()
    return {
        "checkpoint": newest.uri if newest else former.get("checkpoint"),
        "hwm": max(cursor.hwm if cursor else 0, int(former.get("hwm") or 0)),
    }
