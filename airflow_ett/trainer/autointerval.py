"""How often to save, found while training: ``every_s="auto"``.

A save that blocks for ``b`` seconds every ``I`` seconds costs ``b / I`` of the time, and each of
``r`` failures a second loses ``I / 2`` of it on average. The sum is least at ``I = sqrt(2 b / r)``:
the formula of :mod:`airflow_ett.metric.plans.interval`.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections import deque

FAILURES_PER_HOUR = 1 / 24
"""What is expected where nobody knows better: one failure a day."""
FIRST_S = 60.0
"""Until the first save has shown what one costs."""
LEAST_S = 30.0
LEAST_SAVES = 20.0
"""An interval is at least so many times the blocking: saves take 5% of the time at most."""
MOST_S = 3600.0

_REMEMBERED = 5
_STEADY = 1.25
"""A new optimum within this factor of the present interval changes nothing."""

_log = logging.getLogger("airflow_ett.trainer")


class AutoInterval:
    """The interval that wastes least, by the blocking seen and by the failures to expect.

    Damped: the median of the last five saves counts, so that neither the first one, which allocates
    its buffers, nor a slow one in between moves it; and it changes only where that is worth it.
    ``failures_per_hour`` None stands for one a day.
    """

    def __init__(self, failures_per_hour: float | None) -> None:
        self._known = failures_per_hour is not None
        self._failures_per_hour = (
            FAILURES_PER_HOUR if failures_per_hour is None else failures_per_hour
        )
        self._blocking: deque[float] = deque(maxlen=_REMEMBERED)
        self.seconds = FIRST_S
        """The interval now."""

    def learn(self, blocking_s: float) -> None:
        """Take into account that a save has blocked for so long; say so where that changes much."""
        self._blocking.append(blocking_s)
        typical = statistics.median_low(self._blocking)
        best = optimum(typical, self._failures_per_hour)
        if len(self._blocking) > 1 and best / _STEADY < self.seconds < best * _STEADY:
            return
        self.seconds = best
        _log.info(
            "Checkpoints: from now on one every %.0f s. A save blocks for %.3f s, %.3g failures a "
            "day are expected (%s): sqrt(2 x blocking / failure rate), at least %.0f s and %.0f x "
            "blocking, at most %.0f s.",
            best,
            typical,
            24 * self._failures_per_hour,
            "by the launcher's history" if self._known else "nothing is known yet",
            LEAST_S,
            LEAST_SAVES,
            MOST_S,
        )


def optimum(blocking_s: float, failures_per_hour: float) -> float:
    """Return the best interval in seconds, within the bounds."""
    least = max(LEAST_S, LEAST_SAVES * blocking_s)
    if failures_per_hour <= 0:
        return max(MOST_S, least)
    free = math.sqrt(2 * blocking_s * 3600 / failures_per_hour)
    return max(least, min(free, MOST_S))
