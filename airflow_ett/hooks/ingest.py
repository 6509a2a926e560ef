"""The store, at best effort: a running job's log is brought into it, its DAG's past is asked."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from airflow_ett import config
from airflow_ett.storage import is_at_api

if TYPE_CHECKING:
    from airflow_ett.store import Store
    from airflow_ett.store.folds import Folds

log = logging.getLogger(__name__)

_PATIENCE_S = 1.0
"""A locked or slow store must not keep a watcher from its deadlines and its kill flag."""

_TURN_S = 2.0
"""For so long a job's last ingest waits for the process's store. Any other is left for the next
look: those of hundreds of jobs would hold up what looks at them."""

_LATELY_NS = 30 * 86_400 * 10**9

_NUMBERS = ("state", "frozen", "ett_pct", "wall_ns", "effective_ns", "nof")

_turn = threading.Lock()
_opened: tuple[config.Settings, Store] | None = None


class BestEffortIngest:
    """Ingests one job's log now and then; a store that is away costs one warning, never more.

    Nothing is lost by it: the log stays, and the rollup DAG catches up. Of a log that the API holds
    the API itself sees to that. A process has one store, used for one job at a time: the
    connections and statements of hundreds would keep a triggerer's garbage collector busy, which
    stops its event loop.
    """

    def __init__(self, place: str, *, every_s: float = 10.0) -> None:
        self._place = place
        self._at_api = is_at_api(place)
        self._every_s = every_s
        self._due = 0.0
        self._warned = False
        self._settings: config.Settings | None = None
        self._folds: Folds | None = None

    def __call__(self, *, now: bool = False) -> None:
        """Ingest if it is due, or at once when ``now``."""
        if self._at_api or (not now and time.monotonic() < self._due):
            return
        if not _turn.acquire(timeout=_TURN_S if now else 0):
            return
        self._due = time.monotonic() + self._every_s
        try:
            self._ingest()
        except Exception as error:  # whatever it is, watching the training goes on
            if not self._warned:
                log.warning(
                    "ETT%% numbers are not up to date: %s Training is not affected; the events "
                    "stay in the job's log and are ingested later.",
                    error,
                )
            self._warned = True
        finally:
            _turn.release()

    def _ingest(self) -> None:
        # SQLAlchemy takes a while to import, which DAG parsing is spared.
        from airflow_ett.store import ingest_run_dir
        from airflow_ett.store.folds import Folds

        if self._settings is None:
            self._settings = config.load()
        if self._folds is None:
            self._folds = Folds()
        # Closed but kept: no connection waits for the next time.
        with contextlib.closing(_store(self._settings)) as store:
            store.check()
            ingest_run_dir(store, self._place, self._folds)


def failures_per_hour(settings: config.Settings, dag_id: str) -> float | None:
    """Return how often a DAG's trainings were interrupted of late; None where nobody tells."""
    from airflow_ett.store.queries import failures_per_hour as ask

    if not _turn.acquire(timeout=_TURN_S):
        return None
    try:
        with contextlib.closing(_store(settings)) as store:
            store.check()
            since_ns = time.time_ns() - _LATELY_NS
            return ask(store, settings.deployment, dag_id, since_ns=since_ns)
    except Exception as error:  # a training must not wait for its statistics
        log.info("How often trainings of %s fail is not known: %s", dag_id, error)
        return None
    finally:
        _turn.release()


def numbers_of(settings: config.Settings, job: str) -> dict[str, Any]:
    """Return a job's numbers under the names that its result has; none where nobody tells."""
    from airflow_ett.store.queries import result_parts

    if not _turn.acquire(timeout=_TURN_S):
        return {}
    try:
        with contextlib.closing(_store(settings)) as store:
            store.check()
            return result_parts(store, [job], _NUMBERS).get(job, {})
    except Exception as error:  # a model must not wait for its training's numbers
        log.info("The numbers of job %s are not known: %s", job, error)
        return {}
    finally:
        _turn.release()


def _store(settings: config.Settings) -> Store:
    """Return the process's store; called in turn."""
    from airflow_ett.metric import configured
    from airflow_ett.store import open_store

    global _opened
    if _opened is None or _opened[0] != settings:
        components = configured(settings)
        url = settings.sql_alchemy_conn
        _opened = settings, open_store(url, patience_s=_PATIENCE_S, components=components)
    return _opened[1]
