"""What Airflow remembers of a job from try to try: where its log lies.

A run root that is not mounted on the worker of a later try looks like one that no job was ever
begun in, and so does another run root or another deployment name: the try would submit a second
training beside the first. Airflow's task state outlives tries, so it can tell them apart. A user's
clear (it raises ``max_tries``) may begin a job anew: its run directory may have been removed on
purpose. A run that is deleted takes its task state along, so that one that is made again under the
same id is known by having none.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.context import NEVER_EXPIRE

from airflow_ett.errors import JobLogError
from airflow_ett.events import JobKey, RunDir
from airflow_ett.launch.rundirlog import RunDirLog

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

log = logging.getLogger(__name__)

_NAME = "airflow_ett_job"


class JobMemory:
    """One task instance's memory of its job."""

    def __init__(self, context: Context) -> None:
        self._store: Any = context.get("task_state_store")
        self._max_tries = context["ti"].max_tries

    def check(self, key: JobKey, run_root: Path) -> bool:
        """Return whether this run has begun the job, True where Airflow cannot tell.

        Raises :class:`JobLogError` when the log of an earlier try is not there any more, or not
        where this try would look for it.
        """
        if self._store is None:
            return True
        try:
            kept = self._store.get(_NAME)
        except AirflowRuntimeError as error:
            log.warning("Airflow does not tell where the job's log lies: %s", error)
            return True
        if not isinstance(kept, dict):
            return False
        if kept.get("max_tries") == self._max_tries:
            _check_place(RunDir(Path(kept["run_dir"])), key, run_root / key.base)
        return True

    def keep(self, run_dir: str) -> None:
        """Remember where the job's log lies."""
        if self._store is None:
            return
        try:
            kept = {"run_dir": run_dir, "max_tries": self._max_tries}
            self._store.set(_NAME, kept, retention=NEVER_EXPIRE)
        except AirflowRuntimeError as error:
            log.warning("Airflow does not keep where the job's log lies: %s", error)


def _check_place(run_dir: RunDir, key: JobKey, base: Path) -> None:
    if run_dir.path.parent.resolve() != base.resolve():
        raise JobLogError(
            f"Job {key} was begun in {run_dir.path}; [ett] run_root and deployment now say {base}. "
            "Nothing was submitted, and its training may be alive: set them back. To begin anew "
            "there, end the training at its scheduler, then clear the task."
        )
    if RunDirLog(run_dir, key).newest() == 0:
        raise JobLogError(
            f"Job {key} was begun in {run_dir.path}, where nothing is now. Is the folder of "
            "[ett] run_root mounted on this worker? Nothing was submitted. If the folder was "
            "removed on purpose, clear the task: it then begins anew."
        )
