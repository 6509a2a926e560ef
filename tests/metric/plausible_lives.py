"""Plausible lives of jobs, each made from a seed.

Times are small numbers of ns, so that moments collide often.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_ett.events import AttemptId, Event


class Life:
    """A plausible life with random lengths: attempts that start, train, save and end somehow.

    A ``plain`` one has no phases that overlap anything, and only rank 0 tells of steps.
    """

    def __init__(self, seed: int, *, plain: bool = False) -> None:
        self.random = random.Random(seed)
        self.plain = plain
        self.events: list[Event] = []
        self.now = 100
        self.cursor = self.hwm = self.saved = 0
        self._seq: Counter[str] = Counter()
        self._later: list[Callable[[], object]] = []

    def add(self, kind: str, attempt: AttemptId | None, rank: int | None, **fields: Any) -> Event:
        writer = "launcher" if rank is None else f"t{attempt}-{rank}"
        event = Event("j", writer, self._seq[writer], self.now, kind, attempt, rank, fields)
        self._seq[writer] += 1
        self.events.append(event)
        return event

    def wait(self, most: int = 9) -> int:
        length = self.random.randint(0, most)
        self.now += length
        return length

    def tell(self) -> list[Event]:
        choose = self.random
        scheduler = choose.choice(["slurm", "local"])
        self.add("job_opened", None, None, scheduler=scheduler, accelerators=2)
        number, restart, elastic, count = 1, 0, 0, choose.randint(1, 5)
        cause = None
        for at in range(count):
            attempt = AttemptId(number, restart, elastic)
            cause = None if at == count - 1 and choose.random() < 0.6 else "preempted"
            if cause and not self.plain:
                cause = choose.choice(
                    ["preempted", "application", "user_restart", "user_cancelled"]
                )
            self.attempt(attempt, cause, choose.random() < 0.8)
            self.wait()
            number, restart, elastic = choose.choice(
                [(number + 1, 0, 0), (number, restart + 1, 0), (number, restart, elastic + 1)]
            )
        if choose.random() < 0.7:
            state = "succeeded" if cause is None else choose.choice(["failed", "cancelled"])
            self.add("job_ended", None, None, state=state)
        return self.events

    def attempt(self, attempt: AttemptId, cause: str | None, lives: bool) -> None:
        choose = self.random
        if attempt[1:] == (0, 0):
            self.add("submitted", attempt, None, submission=attempt[0], layer="first")
        self.wait()
        started = {"allocated_ns": self.now, "restart": attempt[1]}
        self.add("scheduler_state", None, None, submission=attempt[0], **started)
        if lives:
            self.live(attempt, cause)
        if cause in ("user_restart", "user_cancelled"):
            self.add("cancel_requested", None, None, submission=attempt[0], reason=cause)
        self.wait()
        while self._later:
            self._later.pop()()
        if self.plain or choose.random() < 0.9:
            self.add("attempt_ended", attempt, None, cause=cause)

    def live(self, attempt: AttemptId, cause: str | None) -> None:
        choose, ranks = self.random, self.random.randint(1, 3)
        for rank in range(ranks):
            self.wait()
            self.add("process_started", attempt, rank)
            self.add("session_started", attempt, rank, cursor_hwm=self.hwm)
        self.phase(attempt, "first_batch")
        self.cursor = min(self.saved, self.cursor)
        deeds = [self.steps, self.steps, self.some_phase, self.save]
        if not self.plain:
            deeds += [self.steps, self.rank, self.odd_phase, self.fragment, self.stall, self.oddity]
        for _ in range(choose.randint(0, 8)):
            choose.choice(deeds)(attempt)
            if self._later and choose.random() < 0.4:
                self._later.pop(choose.randrange(len(self._later)))()
        if cause is None:
            self.add("session_ended", attempt, 0, outcome="success")
        elif not self.plain and choose.random() < 0.6:
            self.add(choose.choice(["failure", "signal", "process_ended"]), attempt, 0, exit_code=1)

    def some_phase(self, attempt: AttemptId) -> None:
        self.phase(attempt, self.random.choice(["compile", "evaluation", "own", "wasted.own"]))

    def phase(self, attempt: AttemptId, name: str, rank: int = 0) -> None:
        span = str(len(self.events))
        self.add("phase_begin", attempt, rank, span=span, phase=name)
        self.wait()
        self.add("phase_end", attempt, rank, span=span)

    def odd_phase(self, attempt: AttemptId) -> None:
        """One that other deeds lie in or cross, on any lane; it may never end."""
        name = self.random.choice(["evaluation", "upload", "publish", "shutdown"])
        span, lane = str(len(self.events)), self.random.choice(["main", "main", "side"])
        self.add("phase_begin", attempt, 0, span=span, phase=name, lane=lane)
        if self.random.random() < 0.7:
            self._later.append(lambda: self.add("phase_end", attempt, 0, span=span))

    def steps(self, attempt: AttemptId, rank: int = 0) -> None:
        begin, cursor = self.now, self.cursor
        wait, step, other = self.wait(3), self.wait(), self.wait(3)
        steps = self.random.randint(1, 4)
        if rank == 0:
            self.cursor += steps
            self.hwm = max(self.hwm, self.cursor)
        lengths = {"wait_ns": wait, "step_ns": step, "other_ns": other, "steps": steps}
        cursors = {"cursor_from": cursor, "cursor_to": cursor + steps}
        span = {"from": begin, "to": self.now}
        grown = self.add("interval", attempt, rank, **span, **cursors, **lengths)
        if step and not self.plain and self.random.random() < 0.2:
            # A look at the cursor file, before the interval was closed under the same number.
            early = {**grown.data, "to": begin + wait + 1, "step_ns": 1, "other_ns": 0, "steps": 1}
            early["cursor_to"] = cursor + 1
            self.events.insert(-1, replace(grown, time_ns=begin + wait + 1, data=early))

    def fragment(self, attempt: AttemptId) -> None:
        begin, cursor = self.now, self.cursor
        lengths = {"wait_ns": self.wait(3), "step_ns": self.wait(), "other_ns": 0, "steps": 0}
        cursors = {"cursor_from": cursor, "cursor_to": cursor}
        span = {"from": begin, "to": self.now, "fragment": True}
        self.add("interval", attempt, 0, **span, **cursors, **lengths)
        self.some_phase(attempt)
        if self.random.random() < 0.8:
            self.steps(attempt)

    def save(self, attempt: AttemptId) -> None:
        self.saved = self.cursor
        fields = {"checkpoint": f"c{self.cursor}", "cursor": self.cursor}
        self.add("checkpoint_saved", attempt, 0, blocking_ns=1, **fields)
        self.add("checkpoint_committed", attempt, 0, **fields)

    def rank(self, attempt: AttemptId) -> None:
        """Another rank does something of its own, now or a little before."""
        now, rank = self.now, self.random.randint(1, 2)
        self.now -= self.random.randint(0, 12)
        if self.random.random() < 0.5:
            self.steps(attempt, rank)
        else:
            self.phase(attempt, "first_batch", rank)
        self.now = now

    def stall(self, attempt: AttemptId) -> None:
        begin = self.now
        self.wait()
        self.add("stalled", attempt, 0, begin=begin)
        if self.random.random() < 0.6:
            over = self.now + self.random.randint(-9, 3)
            self._later.append(lambda: self.add("stalled", attempt, 0, begin=begin, end=over))

    def oddity(self, attempt: AttemptId) -> None:
        match self.random.randint(0, 5):
            case 0:
                self.cursor = max(0, self.cursor - 3)
            case 1:
                self.add("session_ended", attempt, 0, outcome="success")
                self.wait()
                self.add("session_started", attempt, 0, cursor_hwm=self.hwm)
                self.phase(attempt, "first_batch")
            case 2:
                self.add("resumed", attempt, 0, checkpoint="c", cursor=self.saved, hwm=self.hwm)
            case 3:
                self.add("compile", attempt, 0, duration_ns=self.random.randint(0, 20))
            case 4:
                outcome = self.random.choice(["missed", "saved", "saved"])
                rank, size = self.random.randint(0, 1), self.random.randint(0, 9)
                self.add("lever", attempt, rank, lever="cache", outcome=outcome, bytes=size)
            case _:
                self.add("of_the_future", attempt, 0, phase="train", more={"deep": [1]})
