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
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.context import NEVER_EXPIRE

from airflow_ett.errors import JobLogError
from airflow_ett.events import JobKey
from airflow_ett.launch.root import Root

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

log = logging.getLogger(__name__)

_NAME = "airflow_ett_job"


class JobMemory:
    """One task instance's memory of its job."""

    def __init__(self, context: Context) -> None:
        self._store: Any = context.get("task_state_store")
        self._max_tries = context["ti"].max_tries

    def check(self, key: JobKey, root: Root) -> bool:
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
            generation = kept.get("generation", key.generation)
            _check_place(kept["run_dir"], replace(key, generation=generation), root)
        return True

    def keep(self, place: str, generation: int) -> None:
        """Remember where the job's log lies."""
        if self._store is None:
            return
        try:
            kept = {"run_dir": place, "generation": generation, "max_tries": self._max_tries}
            self._store.set(_NAME, kept, retention=NEVER_EXPIRE)
        except AirflowRuntimeError as error:
            log.warning("Airflow does not keep where the job's log lies: %s", error)


def _check_place(place: str, key: JobKey, root: Root) -> None:
    if not root.holds(place, key):
        raise JobLogError(
            f"Job {key} was begun in {place}; {root.option} and deployment now say "
            f"{root.place(key)}. Nothing was submitted, and its training may be alive: set them "
            "back. To begin anew there, end the training at its scheduler, then clear the task."
        )
    if root.log(key, place=place).newest() == 0:
        away = "has the API lost its database" if root.is_api else "is it mounted on this worker"
        raise JobLogError(
            f"Job {key} was begun in {place}, where nothing is now. {root.option}: {away}? Nothing "
            "was submitted. If it was removed on purpose, clear the task: it then begins anew."
        )
