"""Notes what only Airflow's own processes see of a task: a user's mark, a lost task process.

===========================================  =============  =======================================
hook                                         process        what is noted
===========================================  =============  =======================================
success, failed, skipped; no previous state  api-server     a user marked the task (or its Dag run)
failed, error is a text or None              scheduler      the task was lost: no heartbeat, killed
any, error is an exception or none given     task           nothing: the operator writes its own log
===========================================  =============  =======================================

A clear and a deferral call no hook. All is best effort: a hook reads what is in memory and leaves
the file to a thread, so that a run root that hangs holds up neither scheduler nor api-server.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import Any

from airflow.listeners import hookimpl

from airflow_ett import config
from airflow_ett.events import JobKey
from airflow_ett.hooks.notes import AIRFLOW, USER, Note, write_note
from airflow_ett.launch.root import Root

log = logging.getLogger(__name__)

_Place = tuple[str, str, str, int]

_TEXT_LIMIT = 500
_waiting: queue.Queue[tuple[_Place, Note]] = queue.Queue(10_000)
"""A user may mark a DAG run of thousands of tasks; what is more than that is dropped."""

_at_once = threading.BoundedSemaphore(4)
"""A run root that hangs costs so many threads and no more; further notes wait for it."""


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Note a task that a user marked as succeeded."""
    if previous_state is None:
        _hear(task_instance, "success", USER)


@hookimpl
def on_task_instance_skipped(previous_state: Any, task_instance: Any) -> None:
    """Note a task that a user marked as skipped."""
    if previous_state is None:
        _hear(task_instance, "skipped", USER)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Note a task that a user marked as failed, or that the scheduler gave up or will retry."""
    if previous_state is None:
        _hear(task_instance, "failed", USER, error)
    elif not isinstance(error, BaseException):
        _hear(task_instance, str(getattr(task_instance, "state", "")), AIRFLOW, error)


def _hear(task_instance: Any, state: str, by: str, error: object = None) -> None:
    try:
        note = Note(state, by, int(task_instance.try_number), str(error or "")[:_TEXT_LIMIT])
        map_index = task_instance.map_index
        place = (
            str(task_instance.dag_id),
            str(task_instance.run_id),
            str(task_instance.task_id),
            -1 if map_index is None else int(map_index),
        )
        _waiting.put_nowait((place, note))
        threading.Thread(target=_work, name="ett-note", daemon=True).start()
    except queue.Full:
        log.warning(
            "ETT: %d notes wait for the run root, which does not answer or is slow: it is not "
            "noted that %s is %s",
            _waiting.maxsize,
            task_instance,
            state,
        )
    except Exception as error:  # never in Airflow's way
        log.warning("ETT could not note that %s is %s: %s", task_instance, state, error)


def _work() -> None:
    """Write what waits, unless enough threads do: whoever stops looks once more afterwards."""
    while not _waiting.empty() and _at_once.acquire(blocking=False):
        try:
            while True:
                _write(*_waiting.get_nowait())
        except queue.Empty:
            pass
        finally:
            _at_once.release()


def _write(place: _Place, note: Note) -> None:
    try:
        settings = config.load()
        write_note(Root.of(settings), JobKey(settings.deployment, *place), note)
    except Exception as error:
        log.warning("ETT could not note that %s is %s: %s", place, note.state, error)
