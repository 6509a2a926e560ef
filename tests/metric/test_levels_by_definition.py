"""Level 1 counted second by second, as the definition reads, beside what the metric makes of it."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric import measure


class Life:
    """Attempts with a step an interval, cut short somehow, and what A, I and S are by definition.

    All happens at whole seconds; ``effective`` holds those in which a step passed the mark. A
    user's cancel for good is followed by no recovery.
    """

    def __init__(self, history: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.history = history
        self.now = 0
        self.hwm = self.saved = 0
        self.effective: set[int] = set()
        self.advances: list[tuple[int, int]] = []
        self.interruptions: list[tuple[int, int]] = []
        self.cancelled: tuple[int, int] | None = None
        self.shut: int | None = None
        self.tell()

    def wait(self, most: int = 4, least: int = 0) -> int:
        self.now += self.random.randint(least, most)
        return self.now

    def tell(self) -> None:
        choose, history = self.random, self.history.open("local")
        count = choose.randint(1, 5)
        for number in range(1, count + 1):
            history.submit(self.now, number, "first" if number == 1 else "relaunch")
            last = number == count
            fate = choose.choice(["success", "user", "failure"] if last else ["user", "failure"])
            self.attempt((number, 0, 0), fate, last=last)
            if not last:
                self.wait(least=1)
        self.end = self.now
        state = {"success": "succeeded", "user": "cancelled", "failure": "failed"}[fate]
        history.state(self.now, count, state="DONE", ended=self.now).job_ended(self.now, state)

    def attempt(self, name: tuple[int, int, int], fate: str, *, last: bool) -> None:
        choose, history = self.random, self.history
        number, signalled, stepped = name[0], None, None
        history.session(self.wait(least=1), self.wait(), name, hwm=self.hwm)
        cursor = choose.randint(self.saved, self.hwm)
        first = True
        for _ in range(choose.randint(0, 6)):
            if choose.random() < 0.3:
                history.phase(choose.choice(["evaluation", "compile"]), self.now, self.wait(), name)
            if fate != "success" and signalled is None and choose.random() < 0.2:
                signalled = self.now
                history.add("signal", self.now, {"signal": "SIGTERM"}, attempt=name, rank=0)
            begin, wait = self.now, choose.randint(0, 2)
            self.now += wait
            stepping = self.now
            other = choose.randint(0, 2)
            self.now = stepped = self.wait(least=1)
            self.now += other
            history.steps(begin, self.now, (cursor, cursor + 1), name, wait=wait, other=other)
            cursor += 1
            if cursor > self.hwm:
                self.hwm = cursor
                self.effective |= set(range(stepping, stepped))
                if first:
                    self.advances.append((number, stepped))
                    first = False
        if choose.random() < 0.5:
            self.saved = cursor
        sign = self.now
        if fate == "success":
            history.session_ended(self.wait(), attempt=name)
            self.shut = self.now if stepped is None else stepped
        else:
            interruption = sign if signalled is None else signalled
            self.interruptions.append((number, interruption))
            if fate == "user" and last:
                self.cancelled = self.interruptions[-1]
                self.shut = interruption if stepped is None else stepped
        cause = {"success": None, "failure": "infrastructure"}.get(fate)
        if fate == "user":
            cause = "user_cancelled" if last else "user_restart"
        history.ended(self.wait(), cause, name)

    def levels(self) -> dict[str, int]:
        """Count each second of the job into its bucket."""
        shut = self.end if self.shut is None else self.shut
        started = min([t for _, t in self.advances + self.interruptions] + [shut])
        recoveries = []
        for number, begin in self.interruptions:
            turns = [t for n, t in self.advances + self.interruptions if n > number]
            if (number, begin) != self.cancelled:
                recoveries.append((begin, min([*turns, shut])))
        found = dict.fromkeys(("effective", "start", "recovery", "steady", "shutdown"), 0)
        for at in range(self.end):
            if at in self.effective:
                found["effective"] += 1
            elif at < started:
                found["start"] += 1
            elif at >= shut:
                found["shutdown"] += 1
            elif any(begin <= at < end for begin, end in recoveries):
                found["recovery"] += 1
            else:
                found["steady"] += 1
        return found


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_levels_are_what_the_definition_says(new_history, invariants, seed) -> None:
    life = Life(new_history(), seed)
    metric = measure(life.history.events)
    invariants(metric)
    assert {n: ns // 10**9 for n, ns in metric.levels_ns.items()} == life.levels()
    assert metric.wall_ns == life.end * 10**9
