"""Trainings that go on although their Airflow task is over: find them and, if told to, end them.

Airflow runs no hook when a deferred task is marked while the triggerer is down, or before the
trigger has started, and none in a task whose process was lost in its last try.

========================================  ==========================  ===========================
Airflow's state of the task instance      the job's log               reason to cancel
========================================  ==========================  ===========================
success, skipped, upstream_failed         –                           ``user_cancelled``
removed, or not there (nor its Dag run)   –                           ``user_cancelled``
failed                                    a user marked it            ``user_cancelled``
failed                                    the scheduler gave it up    ``infrastructure``
failed                                    neither                     ``unknown``
none, scheduled, queued                   ``user_restart``            ``user_restart``: job goes on
none, scheduled, queued                   –                           none: the next try decides
running, deferred, up_for_retry, …        –                           none: it is watched, or soon
no answer, or the Dag is unknown          –                           none
========================================  ==========================  ===========================

A job that has ended is none of the reaper's. What ended by itself meanwhile keeps its own cause.
The reason must be the same, and no one may have claimed the job, before and after a grace in which
kill hooks do their work; the job is then claimed, so that whoever held it before stops.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_ett.config import Settings
from airflow_ett.errors import EttError
from airflow_ett.events import Cause, JobKey, Kind
from airflow_ett.hooks.kill import Kill, airflow_state, meaning
from airflow_ett.hooks.masking import redactor
from airflow_ett.hooks.notes import AIRFLOW, USER, Note, read_notes
from airflow_ett.launch.ender import Ender
from airflow_ett.launch.history import History, fold
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import is_folder

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway

log = logging.getLogger(__name__)

GRACE_S = 60.0
"""Twice as long as Airflow gives a trigger's kill hook."""

_BY = {USER: Cause.USER_CANCELLED, AIRFLOW: Cause.INFRASTRUCTURE}


def reason_to_cancel(
    state: str | None, *, try_number: int, notes: Sequence[Note] = (), user_restart: bool = False
) -> Cause | None:
    """Return why a job of a task instance in ``state`` is cancelled; None: leave it alone.

    ``try_number`` is the try that claimed the job last: older notes tell of a life before it.
    """
    kill = meaning(state)
    if kill is Kill.MOVED or state == "restarting":
        return None
    if kill is Kill.CLEARED:
        return Cause.USER_RESTART if user_restart else None
    if state != "failed":
        return Cause.USER_CANCELLED
    told = [note.by for note in notes if note.state == state and note.try_number >= try_number]
    return _BY.get(told[-1], Cause.UNKNOWN) if told else Cause.UNKNOWN


def ask_airflow(key: JobKey) -> str | None:
    """Return the state of a job's task instance, ``removed`` where a known Dag has none such.

    Raises :class:`AirflowRuntimeError` when Airflow cannot tell, or knows no such Dag: that a task
    instance is not there means nothing then.
    """
    state = airflow_state(asdict(key))
    if state == "removed":
        RuntimeTaskInstance.get_dag(key.dag_id)
    return state


@dataclass(frozen=True, slots=True)
class Suspect:
    """A job that has not ended and whose task is over; ``epoch`` was its newest claim then."""

    log: StorageLog
    history: History
    epoch: int
    state: str | None
    reason: Cause

    def __str__(self) -> str:
        return f"Job {self.log.key} is not over although its Airflow task is {self.state or 'none'}"


def reap(
    settings: Settings,
    *,
    ask: Callable[[JobKey], str | None] = ask_airflow,
    gateway: Callable[[], Gateway] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Look for trainings whose Airflow task is over; return a sentence about each.

    With ``[ett] reaper = cancel`` they are cancelled, else only told of. Runs inside a task.
    """
    root = Root.of(settings)
    before = list(_suspects(root, _places(root, settings), ask))
    if not before:
        return []
    sleep(GRACE_S)
    epochs = {suspect.log.place: suspect.epoch for suspect in before}
    after = _suspects(root, epochs, ask)
    still = (suspect for suspect in after if suspect.epoch == epochs[suspect.log.place])
    if settings.reaper != "cancel":
        would = "would be cancelled with [ett] reaper = cancel"
        return [f"{suspect}: {would}, cause {suspect.reason}" for suspect in still]
    return [_end(suspect, gateway or _gateway, sleep) for suspect in still]


def _end(suspect: Suspect, gateway: Callable[[], Gateway], sleep: Callable[[float], None]) -> str:
    history, opened = suspect.history, suspect.history.opened or {}
    gone_on = f"Its Airflow task is {suspect.state or 'none'} and nobody watched it."
    try:
        tries = {"try_number": history.try_number, "max_tries": history.max_tries}
        claim = suspect.log.claim(**tries, mode="again", after=suspect.epoch)
        place = suspect.log.place
        checkpoints = f"{place}/checkpoints" if is_folder(place) else ""
        job = OpenJob(suspect.log, checkpoints, opened.get("inherit"))
        request = Request(opened["component"], [], opened["scheduler"], max_relaunches=0)
        done = Ender(job, claim, request, gateway()).end(suspect.reason, gone_on, sleep)
    except EttError as error:
        done = f"left alone. {error}"
    return f"{suspect}: {done}"


def _suspects(
    root: Root, places: Iterable[str], ask: Callable[[JobKey], str | None]
) -> Iterator[Suspect]:
    for place in places:
        try:
            suspect = _look(root, place, ask)
        except AirflowRuntimeError as error:
            log.warning("Airflow does not tell of the task of %s, left alone: %s", place, error)
        except Exception as error:  # one odd run directory must not hide the others
            log.warning("The job in %s cannot be judged, left alone: %r", place, error)
        else:
            if suspect is not None:
                yield suspect


def _look(root: Root, place: str, ask: Callable[[JobKey], str | None]) -> Suspect | None:
    storage = root.open(place)
    events = storage.events("launcher")
    opened = next((event for event in events if event.kind == Kind.JOB_OPENED), None)
    key = JobKey(**opened.data["key"]) if opened else None
    if key is None or root.place(key) != place:
        return None
    job_log = root.log(key, redact=redactor({}))
    epoch = job_log.newest()
    history = fold(job_log.launcher_events())
    if history.opened is None or history.ended is not None:
        return None
    state = ask(key)
    reason = reason_to_cancel(
        state,
        try_number=history.try_number,
        notes=read_notes(storage),
        user_restart=history.user_restart and history.live is not None,
    )
    if reason is None:
        return None
    return Suspect(job_log, history, epoch, state, reason)


def _places(root: Root, settings: Settings) -> Iterator[str]:
    """Yield where jobs may lie: below the run root, or at the API those that have not ended."""
    from airflow_ett.store import open_store
    from airflow_ett.store.rundirs import run_places
    from airflow_ett.store.unfinished import unfinished

    if not root.is_api:
        yield from run_places(root.address, settings.deployment)
        return
    with contextlib.closing(open_store(settings.sql_alchemy_conn)) as store:
        yield from map(root.place, unfinished(store, settings.deployment))


def _gateway() -> Gateway:
    # Importing TorchX takes a while, and most runs find nothing.
    from airflow_ett.launch.gateway import Gateway

    return Gateway()
