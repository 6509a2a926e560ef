"""Keep a task instance's links up to date, from the task or from its trigger, at best effort."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from airflow.sdk.bases.xcom import BaseXCom

from airflow_ett.hooks.masking import redact
from airflow_ett.launch.places import Places
from airflow_ett.links.addresses import TaskAt, without_secrets
from airflow_ett.links.extra import LINKS

log = logging.getLogger(__name__)

_REST = 10
"""After a push that failed, the next waits for so many times as long as that one took: an API
server that does not answer would hold up the looks at the training."""


class LinkBoard:
    """Shows where one try's job is to be found; ``key`` holds the fields of the job's key.

    Airflow's API server reads a link from an XCom, and a retry begins without XComs: each try
    pushes its own, right after submit. A push that fails costs one warning, never more. A place
    that is not found at some look stays as it was last seen.
    """

    def __init__(self, key: Mapping[str, Any], *, every_s: float = 15.0) -> None:
        self._task = TaskAt(**{name: key[name] for name in TaskAt.__slots__})
        self._every_s = every_s
        self._due = 0.0
        self._warned = False
        self._pushed: dict[str, str] = {}

    def __call__(self, find: Callable[[], Places], *, now: bool = False) -> None:
        """Push what ``find`` returns if it is due, or at once when ``now``."""
        if not now and time.monotonic() < self._due:
            return
        begun = time.monotonic()
        self._due = begun + self._every_s
        try:
            places = {n: without_secrets(v, redact) for n, v in asdict(find()).items()}
            links = {link.xcom_key: link.address(self._task, places[link.place]) for link in LINKS}
            for key, text in (places | links).items():
                self._push(key, text)
        except Exception as error:  # whatever it is, watching the training goes on
            if not self._warned:
                log.warning("Links of %s are not up to date: %s", self._task, redact(str(error)))
            self._warned = True
            ended = time.monotonic()
            self._due = max(self._due, ended + _REST * (ended - begun))

    def _push(self, key: str, text: str | None) -> None:
        """Store news as an XCom, past any custom backend: the API server reads it as it is."""
        if text and self._pushed.get(key) != text:
            BaseXCom.set(key, text, **asdict(self._task))
            self._pushed[key] = text
