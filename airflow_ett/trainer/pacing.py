"""When the next save is due."""

from __future__ import annotations

import os
import time
from typing import Literal

from airflow_ett.config import EVERY_VARIABLE
from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.autointerval import AutoInterval

NEVER = 1 << 62
"""A monotonic time that does not come."""


class Pace:
    """So many seconds after the last save, or after the first question; None for never.

    ``auto`` finds the interval while training, for so many failures an hour (None: not known).
    Raises :class:`ConfigurationError` for any other word.
    """

    def __init__(
        self, every_s: float | Literal["auto"] | None, failures_per_hour: float | None
    ) -> None:
        self._auto: AutoInterval | None = None
        if every_s == "auto":
            self._auto = AutoInterval(failures_per_hour)
            every_s = self._auto.seconds
        elif isinstance(every_s, str):
            problem = f"{every_s!r} is neither a number of seconds, 'auto', nor None"
            raise ConfigurationError("every_s", problem)
        self._every_ns = None if every_s is None else int(every_s * 1e9)
        self._last_ns: int | None = None
        self.at_once = False
        """Whether the next save need not wait."""

    @property
    def every_ns(self) -> int:
        """The interval, 0 where there is none."""
        return self._every_ns or 0

    @property
    def due_ns(self) -> int:
        """The monotonic time at which the next save is due."""
        if self._every_ns is None:
            return NEVER
        if self._last_ns is None:
            self._last_ns = time.monotonic_ns()
        return 0 if self.at_once else self._last_ns + self._every_ns

    def saved(self) -> None:
        """A save is over now, or has failed."""
        self._last_ns = time.monotonic_ns()

    def learn(self, blocking_ns: int) -> None:
        """A typical save has kept the training waiting for so long."""
        if self._auto is not None:
            self._auto.learn(blocking_ns / 1e9)
            self._every_ns = int(self._auto.seconds * 1e9)


def interval(every_s: float | Literal["auto"] | None) -> float | Literal["auto"] | None:
    """Return how often to save: what the environment says, else what the training's code says.

    Raises :class:`ConfigurationError` that names the variable.
    """
    told = os.environ.get(EVERY_VARIABLE, "").strip()
    if not told:
        return every_s
    if told == "auto":
        return "auto"
    if told == "never":
        return None
    try:
        seconds = float(told)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        problem = f"{told!r} is neither a number of seconds, auto, nor never"
        raise ConfigurationError(EVERY_VARIABLE, problem)
    return seconds
