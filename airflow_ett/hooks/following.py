"""A training of the same DAG run, followed from beside by what its log and Airflow say of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_ett import config
from airflow_ett.checkpoints import holds
from airflow_ett.errors import CheckpointError, ConfigurationError, JobLogError
from airflow_ett.events import JobKey, Kind
from airflow_ett.hooks.kill import airflow_state
from airflow_ett.launch.root import Root
from airflow_ett.launch.storagelog import reachable

log = logging.getLogger(__name__)

_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})

_READ_AGAIN_S = 30.0
"""Between two readings of a log that holds nothing new yet: it may be long."""

_TRIES = 3
"""A trainer that saves often may remove a checkpoint between the look and the hold."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be published now: ``source`` is None where nothing is any more.

    ``source`` has ``checkpoint``, ``cursor``, ``job`` and ``run_dir``, as a training task's output
    has. ``over``: the training is, and this is its last.
    """

    source: dict[str, Any] | None
    over: bool


class Following:
    """Looks at the training of one task; nothing of it is claimed, written or changed.

    ``key`` holds the fields of the training's job key, whichever its generation. ``since`` is the
    checkpoint that was published last, ``due_ns`` when (UTC) the next may be. ``clock`` tells
    nanoseconds.
    """

    def __init__(
        self,
        key: dict[str, Any],
        *,
        since: str | None,
        due_ns: int,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._key = key
        self._since = since
        self._due_ns = due_ns
        self._clock = clock

    def look(self) -> Due | None:
        """Return what is to be published, None while nothing is.

        A log or an Airflow that does not answer is asked again at the next look.
        """
        try:
            # Asked first: a training that is over by then has written its last word.
            over = str(airflow_state(self._key)) in _OVER
            if not over and self._clock() < self._due_ns:
                return None
            source = newest_checkpoint(JobKey(**self._key))
        except (AirflowRuntimeError, JobLogError, OSError, EOFError) as error:
            log.warning("The training is looked at again: %s", error)
            return None
        if source is not None and source["checkpoint"] != self._since:
            return Due(source, over)
        self._due_ns = self._clock() + int(_READ_AGAIN_S * 1e9)
        return Due(None, over) if over else None


def newest_checkpoint(key: JobKey) -> dict[str, Any] | None:
    """Return the newest committed checkpoint of a task instance's newest training, None before one.

    It has the fields of :class:`Due`'s ``source``. Raises :class:`JobLogError` when the log cannot
    be read.
    """
    root = Root.of(config.load())
    generation = root.newest_generation(key)
    if generation == 0:
        return None
    job = root.log(replace(key, generation=generation))
    with reachable(job.key, job.place):
        committed = [e for e in job.storage.events("nodes") if e.kind == Kind.CHECKPOINT_COMMITTED]
    if not committed:
        return None
    newest = max(committed, key=lambda event: (event.attempt or (), int(event.data["cursor"]))).data
    told = {"checkpoint": str(newest["checkpoint"]), "cursor": int(newest["cursor"])}
    return {**told, "job": job.key.id, "run_dir": job.place}


def hold_newest(key: JobKey, source: dict[str, Any], holder: str) -> dict[str, Any]:
    """Keep the trainer from removing what is to be published; return what is by now the newest.

    ``source`` is what a look has found, perhaps a while ago. ``holder`` names the hold, for
    :func:`airflow_ett.checkpoints.holds.release`. A checkpoint that cannot be held from here is
    read all the same. Raises :class:`JobLogError` when the log cannot be read.
    """
    for _ in range(_TRIES):
        source = newest_checkpoint(key) or source
        try:
            holds.take(source["checkpoint"], holder)
        except CheckpointError as error:
            log.info("%s; a newer one is looked for", error)
        except (ConfigurationError, OSError) as error:
            log.info("%s is not kept while it is read: %s", source["checkpoint"], error)
            return source
        else:
            return source
    return source
