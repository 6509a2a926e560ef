"""Bring a running job's log into the store, on the way and at best effort."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_ett import config

if TYPE_CHECKING:
    from airflow_ett.store import Store

log = logging.getLogger(__name__)

_PATIENCE_S = 1.0
"""A locked or slow store must not keep a watcher from its deadlines and its kill flag."""


class BestEffortIngest:
    """Ingests one run directory now and then; a store that is away costs one warning, never more.

    Nothing is lost by it: the log stays, and the rollup DAG catches up.
    """

    def __init__(self, run_dir: Path, *, every_s: float = 10.0) -> None:
        self._run_dir = run_dir
        self._every_s = every_s
        self._due = 0.0
        self._warned = False
        self._store: Store | None = None

    def __call__(self, *, now: bool = False) -> None:
        """Ingest if it is due, or at once when ``now``."""
        if not now and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every_s
        # SQLAlchemy takes a while to import, which DAG parsing is spared.
        from airflow_ett.store import ingest_run_dir

        try:
            # Closed but kept: it knows the job already, and no connection waits for the next time.
            with contextlib.closing(self._opened()) as store:
                store.check()
                ingest_run_dir(store, self._run_dir)
        except Exception as error:  # whatever it is, watching the training goes on
            if not self._warned:
                log.warning(
                    "ETT%% numbers are not up to date: %s Training is not affected; the events "
                    "stay in the run directory and are ingested later.",
                    error,
                )
            self._warned = True

    def _opened(self) -> Store:
        from airflow_ett.metric import configured
        from airflow_ett.store import open_store

        if self._store is None:
            settings = config.load()
            components = configured(settings)
            url = settings.sql_alchemy_conn
            self._store = open_store(url, patience_s=_PATIENCE_S, components=components)
        return self._store
