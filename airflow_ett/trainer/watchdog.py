"""Whether a training stands still: no step for much longer than its steps take.

Judged from the cursor file alone, look by look. Only time in a tracked loop counts: phases
(compile, evaluation, checkpoint_save, first_batch) may be silent for as long as they like, and so
may what comes between and after the loops. A stall is measured in looks, so that a machine that
was suspended is not taken for one that hung.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from airflow_ett.events import CursorRecord

FLOOR_S = 30.0
"""The shortest time without a step that is a stall."""

FACTOR = 10
"""How many times its median a step must take to be one; while too few steps have been seen for a
median, how many times the shortest stall it must take: first steps do all sorts of things."""

LOOK_S = 5.0
"""How often to look at the most."""

_ENOUGH = 3
_MOST = 101


class Stall(NamedTuple):
    """No step from ``begin_ns``, the end of the last one, to ``end_ns``, None while it lasts."""

    begin_ns: int
    end_ns: int | None = None


class Watchdog:
    """Finds stalls of at least ``floor_s`` seconds; to be asked every ``period_s`` seconds."""

    def __init__(self, floor_s: float = FLOOR_S) -> None:
        self._floor_s = floor_s
        self.period_s = min(LOOK_S, floor_s / 6)
        self._last: CursorRecord | None = None
        self._looked_s: float | None = None
        self._silent_s = 0.0
        self._steps_s: deque[float] = deque(maxlen=_MOST)
        self.stall: Stall | None = None
        """The stall that lasts."""

    @property
    def step_s(self) -> float | None:
        """The median of the steps' times, None while too few of them have been seen."""
        known = sorted(self._steps_s)
        return known[len(known) // 2] if len(known) >= _ENOUGH else None

    def look(self, record: CursorRecord | None, now_s: float) -> Stall | None:
        """Return a stall that was just found, or has just ended.

        ``record`` is the training's cursor file as it is at monotonic ``now_s``, None where it
        cannot be read.
        """
        looked_s, self._looked_s = self._looked_s, now_s
        if record is None:
            self._silent_s = 0.0
            return None
        last, self._last = self._last, record
        if last is None or looked_s is None or record.count != last.count:
            self._silent_s = 0.0
            return self._moved(last, record)
        if self.stall is not None or not record.in_loop:
            return None
        self._silent_s += min(now_s - looked_s, 2 * self.period_s)
        step_s = self.step_s
        limit_s = FACTOR * (self._floor_s if step_s is None else step_s)
        if self._silent_s > max(self._floor_s, limit_s):
            self.stall = Stall(record.to_ns)
        return self.stall

    def _moved(self, last: CursorRecord | None, record: CursorRecord) -> Stall | None:
        """Note how long the steps took since the last look, and that a stall is over."""
        if record.in_loop and record.steps:
            self._steps_s.append((record.to_ns - record.from_ns) / record.steps / 1e9)
        elif record.in_loop and last is not None and last.in_loop and record.to_ns > last.to_ns:
            self._steps_s.append((record.to_ns - last.to_ns) / 1e9)
        stall, self.stall = self.stall, None
        if stall is None:
            return None
        # A step of more than ten seconds, and a phase, close the interval where they end or begin.
        after = record.from_ns if record.from_ns > stall.begin_ns else record.to_ns
        return Stall(stall.begin_ns, after)
