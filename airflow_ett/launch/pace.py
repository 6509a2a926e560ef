"""When to look at the scheduler again: a table, and its application to a job.

==============================================  ==================================================
what is known                                   interval, as a multiple of the poll interval b
==============================================  ==================================================
something has just changed, or is about to      b / 4, at least 0.2 s
quiet, and only the scheduler would tell        b
quiet, and its end would be seen without it     b, growing with the quiet to 5 b after 5 minutes
==============================================  ==================================================

A change is a submission, a new state, a request to cancel, an agent's reply. The end of a training
is seen without the scheduler where an agent beats: it writes a reply when its trainers are over,
and the job's log is glanced at every b. While it waits to start there is no end to miss, but
for an app without an agent that starts and ends within one rest: that is seen at the next look.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from airflow_ett.errors import JobLogError
from airflow_ett.launch.history import Submission
from airflow_ett.launch.joblog import JobLog
from airflow_ett.launch.limits import Limits

FAST_FOR_S = 30.0
"""For so long after a change the looks are fast."""

BEATS_S = 15.0
"""An agent whose heartbeat (every 5 s) is younger is taken to live."""

_FASTER = 4.0
_FLOOR_S = 0.2
_MINUTE_S = 60.0
_SLOWEST = 5.0


def interval_s(base_s: float, *, quiet_s: float, rests: bool) -> float:
    """Return the seconds from one look at the scheduler to the next.

    ``base_s`` is the poll interval, ``quiet_s`` the time since anything changed; ``rests``: the end
    would be seen without the scheduler.
    """
    if quiet_s < FAST_FOR_S:
        return min(base_s, max(_FLOOR_S, base_s / _FASTER))
    if not rests:
        return base_s
    return base_s * min(_SLOWEST, max(1.0, quiet_s / _MINUTE_S))


class Pace:
    """Says when a watcher has to look; between two looks it glances at the job's log."""

    def __init__(
        self, log: JobLog, limits: Limits, base_s: float, now_ns: Callable[[], int]
    ) -> None:
        self._log = log
        self._limits = limits
        self._base_s = base_s
        self._now_ns = now_ns
        self._looked_ns = self._stirred_ns = now_ns()
        self._replied: tuple[int, int] | None = None

    def stir(self) -> None:
        """Something has changed, or is about to."""
        self._stirred_ns = self._now_ns()

    def look(self) -> None:
        """The scheduler is being asked."""
        self._looked_ns = self._now_ns()

    def pause_s(self, live: Submission | None) -> float:
        """Return the seconds to the next look or glance: never more than the poll interval."""
        return min(self._base_s, self._interval_s(live))

    def rests(self, live: Submission) -> bool:
        """Return whether the scheduler need not be asked yet, after a glance at what agents say."""
        self._glance(live)
        interval_s, now_ns = self._interval_s(live), self._now_ns()
        return (
            interval_s > self._base_s
            and now_ns - self._looked_ns < interval_s * 1e9
            and not self._limits.late(now_ns)
            and not self._limits.start_late(live, now_ns)
        )

    def _interval_s(self, live: Submission | None) -> float:
        quiet_s = (self._now_ns() - self._stirred_ns) / 1e9
        rests = live is not None and self._end_would_show(live)
        return interval_s(self._base_s, quiet_s=quiet_s, rests=rests)

    def _glance(self, live: Submission) -> None:
        attempt = (live.number, live.restart)
        if self._replied != attempt and self._log.replied(*attempt):
            self._replied = attempt
            self.stir()

    def _end_would_show(self, live: Submission) -> bool:
        """Return whether the job's log would tell of the end before the scheduler is asked."""
        replied = self._replied == (live.number, live.restart)
        if replied or live.cancel_reason is not None or live.unknown_since_ns is not None:
            return False
        if not live.started:
            return True
        with contextlib.suppress(JobLogError):
            beat_ns = self._log.heartbeat_ns()
            return beat_ns is not None and self._now_ns() - beat_ns < BEATS_S * 1e9
        return False
