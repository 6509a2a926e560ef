"""What a node writes on its way to the job's log, where trainers and launchers share no storage.

A thread sends what is new in the local run directory, a batch at a time, and waits out whatever
keeps the place away. Nothing waits for it but the node's end, and that within a bound; what has not
arrived by then stays, and the job's next attempt on the node sends it first.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from airflow_ett.errors import ConfigurationError, EttError
from airflow_ett.events import LogWriter, decode_cursor
from airflow_ett.storage import Storage
from airflow_ett.trainer.masking import masked
from airflow_ett.trainer.notice import has_agent
from airflow_ett.trainer.outbox import Outbox
from airflow_ett.trainer.place import Place, ask
from airflow_ett.trainer.termination import Termination

PERIOD_S = 2.0
"""From one look at the local files to the next."""

DRAIN_S = 30.0
"""How long an end that nobody hurries waits for the place."""

HURRIED_S = 5.0
"""The same where the training has failed and others wait for the process to end."""

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 20.0
_LAST_PAUSE_S = 2.0
_LOOK_S = 0.2

_MARGIN_S = 2.0
"""What a Session leaves of its grace after SIGTERM."""

_ANSWER_S = 5.0
_HOPELESS = (PermissionError, ConfigurationError)
"""What waiting does not mend: a token that is no good, a package that is missing."""

_log = logging.getLogger("airflow_ett.trainer")


class Shipper:
    """Sends what a node writes, from ``start`` to ``close``.

    ``heartbeat`` is the file that the node's agent touches, ``say`` tells people, and ``look`` is
    called with the place after each round.
    """

    def __init__(
        self,
        place: Place,
        say: Callable[[str], None],
        *,
        heartbeat: Path | None = None,
        look: Callable[[Storage], None] = lambda storage: None,
        connect: Callable[[], Storage] | None = None,
        period_s: float = PERIOD_S,
    ) -> None:
        self.place = place
        self._say = say
        self._look = look
        self._connect = connect or place.log
        self._period_s = period_s
        self._outbox = Outbox(place, heartbeat, say)
        self._storage: Storage | None = None
        self._closing, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="ett_shipping", daemon=True)
        self._failures = 0
        self._problem = ""

    def start(self) -> None:
        """Begin. An agent starts its workers before: they are forked from it."""
        self._thread.start()

    def close(self, rest_s: Callable[[], float]) -> None:
        """Send what was written until now, and end; say what is left.

        ``rest_s`` tells how many seconds there are for it, and is asked again and again: a signal
        may shorten them.
        """
        self._closing.set()
        if self._thread.ident is None:
            self._thread.start()
        while self._thread.is_alive() and (rest := rest_s()) > 0:
            self._thread.join(min(rest, _LOOK_S))
        self._stopped.set()
        if self._thread.is_alive() or self._failures:
            self._say(self._farewell())

    def finish(self, termination: Termination, *, hurried: bool) -> None:
        """Close a Session's shipping: after a failure soon, after SIGTERM within the grace."""
        grace_s = self.place.context.grace_s - _MARGIN_S
        until_s = time.monotonic() + (HURRIED_S if hurried else DRAIN_S)

        def rest_s() -> float:
            rest = until_s - time.monotonic()
            received_ns = termination.received_ns
            if received_ns is None:
                return rest
            return min(rest, grace_s - (time.time_ns() - received_ns) / 1e9)

        self.close(rest_s)

    def _run(self) -> None:
        while True:
            closing = self._closing.is_set()
            done = self._round()
            if closing and (done or self._stopped.is_set()):
                return
            if not closing:
                self._closing.wait(self._pause_s())
            elif self._stopped.wait(min(self._pause_s(), _LAST_PAUSE_S)):
                return

    def _round(self) -> bool:
        """Send what there is; True where nothing more is to be hoped for at the end."""
        try:
            if self._storage is None:
                self._storage = self._connect()
            self._outbox.ship(self._storage)
            self._look(self._storage)
        except Exception as error:  # of whatever kind: the thread must not die of it
            self._failures += 1
            self._problem = masked(f"{type(error).__name__}: {error}")
            if self._failures == 1:
                self._say(
                    f"the log of job {self.place.context.key} at {self.place.context.log} cannot "
                    f"be reached: {self._problem}. The training goes on; its events wait in "
                    f"{self.place.context.run_dir}"
                )
            return isinstance(error, _HOPELESS)
        if self._failures:
            self._failures = 0
            self._say(f"the log at {self.place.context.log} is reached again: all was sent")
        return True

    def _pause_s(self) -> float:
        """Return how long to wait: after failures ever longer, and never all nodes alike."""
        if not self._failures:
            return self._period_s
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10))
        return longest * random.uniform(0.5, 1.0)

    def _farewell(self) -> str:
        context, why = self.place.context, self._problem or "no answer in time"
        return (
            f"{self._outbox.left()} bytes of job {context.key}, attempt {self.place.attempt}, "
            f"could not be sent to {context.log} ({why}). They stay on {os.uname().nodename}: the "
            "job's next attempt there sends them, or bring them in with: airflow-ett ingest "
            f"{context.run_dir}"
        )


def carry_over(place: Place, log: LogWriter) -> None:
    """Close the interval that a killed trainer left open on the first node, before another begins.

    A launcher may have done so, if it came before: not where a scheduler has started the app again
    by itself and did not tell why at once, and not where the newest cursor never arrived there.
    Raises ``OSError`` where it cannot be written.
    """
    record = place.run_dir.last_cursor() if place.node == 0 else None
    left = record.open_interval(place.context.key.id) if record else None
    if record is not None and left is not None and record.pid != os.getpid():
        log.copy(left)


def begin(place: Place, log: LogWriter) -> Shipper | None:
    """Send what a Session's node writes, where no agent does so; None for who leaves it to one."""
    if place.local_rank or has_agent():
        return None
    shipper = Shipper(place, _log.warning)
    if place.rank == 0:
        try:
            carry_over(place, log)
        except OSError as error:
            _log.warning("%s cannot be written: %s", log.path, error)
    shipper.start()
    return shipper


def hwm_elsewhere(place: Place) -> int:
    """Return the high-water mark that the job reached on other nodes, 0 where nobody tells.

    The first rank waits a little for it as it starts: without it, what is trained twice looks new.
    """
    try:
        record = decode_cursor(ask(lambda: place.log().read("cursor"), _ANSWER_S) or b"")
    except (EttError, OSError) as error:
        _log.info("How far job %s got elsewhere is not known: %s", place.context.key, error)
        return 0
    return record.hwm if record else 0
