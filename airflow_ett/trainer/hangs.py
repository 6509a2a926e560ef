"""The agent's part in a hang: find it, write down where the ranks stand, end it if told so."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from airflow_ett.trainer import stacks
from airflow_ett.trainer.report import NodeReport
from airflow_ett.trainer.watchdog import LOOK_S, Stall, Watchdog
from airflow_ett.trainer.workers import Worker

_MOST = 10
"""How many stalls of an attempt are worth their stacks."""

_OTHERS_S = 3 * LOOK_S
"""What the other nodes' agents get to see that there is a stall, before the first one ends it."""


class Hangs:
    """Watches over a node's workers, look by look.

    The first rank's node finds a stall. The agents of the other nodes have their ranks' stacks
    written when the first node's file of stacks grows. ``folder`` holds what the workers write;
    ``ends``: workers that hang are to be killed, when their stacks are known; but not in their
    first steps, whose times nobody knows yet.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        report: NodeReport,
        folder: Path,
        watchdog: Watchdog,
        *,
        ends: bool,
        one_node: bool,
    ) -> None:
        self._workers = workers
        self._report = report
        self._folder = folder
        self._watchdog = watchdog
        self._ends = ends
        self._patience_s = watchdog.period_s / 2 if one_node else _OTHERS_S
        self._end_at = 0.0
        self._asked = self._asked_for = self._seen = 0
        self.period_s = watchdog.period_s
        """How often to look, in seconds."""

    def look(self, now_s: float) -> bool:
        """Look at monotonic ``now_s``; True where the workers are to be killed."""
        if self._asked_for < self._asked:
            self._asked_for = self._asked
            self._write_down()
        news = self._watchdog.look(self._report.cursor(self._workers), now_s)
        if news is not None:
            self._report.stalled(news)
            self._say(news)
            self._end_at = now_s + self._patience_s
        begun = news is not None and news.end_ns is None
        if (begun or self._told_by_the_first_node()) and self._asked < _MOST:
            self._asked += 1
            for worker in self._workers:
                if worker.running:
                    stacks.request(worker.pid, stacks.file_of(self._folder, worker.rank))
        stall = self._watchdog.stall
        known = self._watchdog.step_s is not None
        if not (self._ends and known) or stall is None or now_s < self._end_at:
            return False
        self._report.hung = stall
        print("agent: the workers that hang are killed", file=sys.stderr, flush=True)
        return True

    def conclude(self, now_s: float) -> None:
        """All workers are over: tell of a stall that ended after the last look."""
        news = self._watchdog.look(self._report.cursor(self._workers), now_s)
        if news is not None and news.end_ns is not None:
            self._report.stalled(news)

    def _told_by_the_first_node(self) -> bool:
        if self._report.first_node:
            return False
        before, self._seen = self._seen, self._report.stacks_size(node=0)
        return self._seen > before

    def _write_down(self) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        for worker in self._workers:
            text = stacks.collect(stacks.file_of(self._folder, worker.rank))
            told = text or "told nothing: it has no Session, or is being started or stopped\n"
            self._report.add_stacks(f"== {at} rank {worker.rank}, process {worker.pid}\n{told}\n")

    def _say(self, stall: Stall) -> None:
        seconds = ((stall.end_ns or time.time_ns()) - stall.begin_ns) / 1e9
        step_s = self._watchdog.step_s
        usual = f", where one takes {step_s:.3g} s" if step_s else ""
        if stall.end_ns is not None:
            text = f"steps go on after a stall of {seconds:.0f} s"
        else:
            text = f"no step for {seconds:.0f} s{usual}: see {self._report.stacks}"
        print(f"agent: {text}", file=sys.stderr, flush=True)
