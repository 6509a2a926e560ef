"""How much a job may ask of the API that holds its log. All in memory, and all of it bounded."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

MOST_HELD, MOST_HELD_EACH = 128 * 2**20, 32 * 2**20
"""Bytes of all requests that are under way, and of one bearer's among them."""

PART = 64 * 2**10
"""Bytes that count as one request more."""

BODY_S = 60.0
"""Within that many seconds a request is here as a whole."""


class Rate(NamedTuple):
    """So many requests a second, and so many at once after a while of silence."""

    per_s: float
    burst: float


PER_JOB = Rate(200, 400)
"""Of a job's launchers, and as much again of its trainers: these cannot shut those out."""

PER_SERVER = Rate(1000, 2000)

_MOST_BEARERS = 10_000


class Bucket:
    """A token bucket: it fills with time, and a request takes one out. Not thread-safe.

    What is taken out for its size, once that is known, may leave a debt.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._level = rate.burst
        self._at = now

    def wait_s(self, now: float) -> float:
        """Return in how many seconds one may be taken; 0: now."""
        level = self._level + max(0.0, now - self._at) * self._rate.per_s
        self._level, self._at = min(self._rate.burst, level), now
        return max(0.0, (1 - self._level) / self._rate.per_s)

    def take(self, count: int = 1) -> None:
        """Take so many out."""
        self._level -= count


class Limiter:
    """The rates of a server process and of each bearer. Threads may share it.

    Of bearers beyond 10,000 those that were silent for longest are forgotten.
    """

    def __init__(
        self,
        per_bearer: Rate = PER_JOB,
        per_server: Rate = PER_SERVER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_bearer = per_bearer
        self._clock = clock
        self._lock = threading.Lock()
        self._server = Bucket(per_server, clock())
        self._bearers: OrderedDict[Hashable, Bucket] = OrderedDict()

    def wait_s(self, bearer: Hashable) -> int:
        """Let a request in and return 0, or return in how many seconds it may be tried again."""
        now = self._clock()
        with self._lock:
            own = self._bearers.pop(bearer, None) or Bucket(self._per_bearer, now)
            self._bearers[bearer] = own
            if len(self._bearers) > _MOST_BEARERS:
                self._bearers.popitem(last=False)
            wait = max(own.wait_s(now), self._server.wait_s(now))
            if wait > 0:
                return math.ceil(wait)
            own.take()
            self._server.take()
            return 0

    def charge(self, bearer: Hashable, size: int) -> None:
        """Count the bytes that a request has brought: a large one is as good as many."""
        with self._lock:
            own = self._bearers.get(bearer)
            if own is not None:
                own.take(size // PART)
            self._server.take(size // PART)
