"""A training of which every step is known, and what one more failure does to it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import AttemptId, Event
from airflow_ett.metric import JobMetric, measure

SAMPLES = 10
USERS = ("user_restart", "user_cancelled")


@dataclass(frozen=True)
class Step:
    """What a step takes, whether an interval ends with it, and the save that follows, if any."""

    wait: int
    step: int
    other: int
    closes: bool
    blocking: int | None
    upload: int


@dataclass(frozen=True)
class Start:
    """What the way to the first step takes, and whether the Session tells what it knows."""

    lengths: tuple[int, ...]
    tells: bool


@dataclass(frozen=True)
class Failure:
    """It comes when ``done`` steps were made, in the next one or on the next start's way."""

    done: int
    where: str
    layer: str
    cause: str
    outage: tuple[int, int]
    start: Start


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    start: Start
    failures: tuple[Failure, ...]
    ends: str


def drawn(choose: random.Random) -> tuple[Plan, Plan]:
    """A plan, and the same with one failure more."""

    def length(most: int = 9) -> int:
        return choose.choice([0, choose.randint(0, most)])

    def start() -> Start:
        return Start(tuple(length() for _ in range(5)), choose.random() < 0.7)

    def step() -> Step:
        save = length() if choose.random() < 0.25 else None
        closes = choose.random() < 0.3
        return Step(length(4), choose.randint(1, 9), length(4), closes, save, length(20))

    def failure() -> Failure:
        return Failure(
            choose.randint(0, len(steps) - 1),
            choose.choice(["queue", "init", "step", "step", "step"]),
            choose.choice(["relaunch", "airflow", "scheduler", "elastic"]),
            choose.choice(["preempted", "application", "infrastructure", *USERS]),
            (length(), length()),
            start(),
        )

    steps = tuple(step() for _ in range(choose.randint(1, 12)))
    more = sorted([failure() for _ in range(choose.randint(1, 4))], key=lambda one: one.done)
    plan = Plan(steps, start(), tuple(more), choose.choice(["succeeded", "failed", "running"]))
    # The last at its step: those before it stay what they are.
    added = choose.choice([at for at, one in enumerate(more) if one.done not in later(more, at)])
    if added == len(more) - 1 and plan.ends == "failed":
        plan = replace(plan, ends="succeeded")
    return replace(plan, failures=tuple(more[:added] + more[added + 1 :])), plan


def later(failures: list[Failure], at: int) -> set[int]:
    return {one.done for one in failures[at + 1 :]}


class Telling:
    """The log of a plan, and what it must come to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.events: list[Event] = []
        self.now = 0
        self.name = AttemptId(1)
        self.saved = self.hwm = 0
        self.lost: set[int] = set()
        self.replayed = self._committed = 0
        self._seq: Counter[str] = Counter()
        self._uploads: list[tuple[int, int]] = []
        self._tell()

    def add(self, kind: str, rank: int | None = None, time: int | None = None, **data: Any) -> None:
        writer = "launcher" if rank is None else f"trainer {self.name}"
        seq, time = self._seq[writer], self.now if time is None else time
        self._seq[writer] += 1
        named = None if kind in ("job_opened", "job_ended", "scheduler_state") else self.name
        self.events.append(Event("j", writer, seq, time, kind, named, rank, data))

    def _tell(self) -> None:
        self.add("job_opened", scheduler="slurm")
        self.add("submitted", submission=1, layer="first")
        start, failures = self.plan.start, [*self.plan.failures]
        while failures:
            failure = failures.pop(0)
            self._attempt(start, failure)
            last = not failures and self.plan.ends == "failed"
            self._fail(failure, last=last)
            if last:
                return
            # What died on its way starts over.
            start = failure.start if self._stepped else start
        self._attempt(start, None)
        if self.plan.ends == "succeeded":
            self.add("session_ended", 0, outcome="success")
            self.now += start.lengths[0]
            self.add("attempt_ended", cause=None)
            self.add("job_ended", state="succeeded")

    def _attempt(self, start: Start, failure: Failure | None) -> None:
        queue, setup, launch, init, batch = start.lengths
        self._stepped = False
        before = failure if failure and failure.done <= self.hwm else None
        if not self.name.elastic_restart:
            self.now += queue
            if before and before.where == "queue":
                return
            place = {"submission": self.name[0], "restart": self.name[1]}
            self.add("scheduler_state", state="RUNNING", allocated_ns=self.now, **place)
            self.now += setup
        self.add("process_started", 0)
        self.now += launch
        known = {"cursor_hwm": self.hwm * SAMPLES} if start.tells else {}
        self.add("session_started", 0, **known)
        self.now += init
        if before and before.where in ("queue", "init"):
            return
        if self.saved:
            self.add("resumed", 0, checkpoint=f"c{self.saved}", cursor=self.saved * SAMPLES)
        self._phase("first_batch", batch)
        self._stepped = True
        self._train(len(self.plan.steps) if failure is None else failure.done)
        if failure:
            self.now += self.plan.steps[failure.done].wait

    def _train(self, until: int) -> None:
        held: list[int] = []
        first = True
        if self.saved or until:
            self.lost |= {*range(self.saved, self.hwm)}
        for number in range(self.saved, until):
            step, advances = self.plan.steps[number], first and number == self.hwm
            if advances:
                held = self._close(held)
            held.append(number)
            self.now += step.wait + step.step + step.other
            if number < self.hwm:
                self.replayed += step.step
            else:
                first, self.hwm = False, number + 1
            if advances or step.closes or step.blocking is not None:
                held = self._close(held)
            if step.blocking is not None:
                self._save(number + 1, step.blocking, step.upload)
            self._commit()
        self._close(held)

    def _close(self, held: list[int]) -> list[int]:
        if held:
            steps = [self.plan.steps[number] for number in held]
            wait, step, other = (
                sum(getattr(one, name) for one in steps) for name in ("wait", "step", "other")
            )
            lengths = {"wait_ns": wait, "step_ns": step, "other_ns": other, "steps": len(held)}
            cursors = {"cursor_from": held[0] * SAMPLES, "cursor_to": (held[-1] + 1) * SAMPLES}
            span = {"from": self.now - wait - step - other, "to": self.now}
            self.add("interval", 0, **span, **cursors, **lengths)
        return []

    def _phase(self, name: str, length: int) -> None:
        span = str(len(self.events))
        self.add("phase_begin", 0, span=span, phase=name)
        self.now += length
        self.add("phase_end", 0, span=span)

    def _save(self, done: int, blocking: int, upload: int) -> None:
        self._phase("checkpoint_save", blocking)
        fields = {"checkpoint": f"c{done}", "cursor": done * SAMPLES}
        self.add("checkpoint_saved", 0, blocking_ns=blocking, **fields)
        self._uploads.append((self.now + upload, done))

    def _commit(self) -> None:
        for time, done in [one for one in self._uploads if one[0] <= self.now]:
            self._uploads.remove((time, done))
            self._committed = max(self._committed, done)
            fields = {"checkpoint": f"c{done}", "cursor": done * SAMPLES}
            self.add("checkpoint_committed", 0, time=time, **fields)

    def _fail(self, failure: Failure, *, last: bool) -> None:
        self._commit()
        self._uploads.clear()
        self.saved = self._committed
        if self._seq[f"trainer {self.name}"]:
            self.add("failure", 0, exit_code=1)
        self.now += failure.outage[0]
        self.add("attempt_ended", cause=failure.cause)
        if last:
            self.add("job_ended", state="failed")
            return
        self.now += failure.outage[1]
        number, restart, elastic = self.name
        if failure.layer == "elastic" and self._seq[f"trainer {self.name}"]:
            self.name = AttemptId(number, restart, elastic + 1)
        elif failure.layer in ("elastic", "scheduler"):
            self.name = AttemptId(number, restart + 1)
            self.add("scheduler_state", submission=number, restart=restart + 1, state="PENDING")
        else:
            self.name = AttemptId(number + 1)
            self.add("submitted", submission=number + 1, layer=failure.layer)


def known(plan: Plan) -> JobMetric:
    """Measure a plan and hold it against what is known of it."""
    telling = Telling(plan)
    metric = measure(telling.events)
    assert metric.effective_ns == sum(plan.steps[number].step for number in range(telling.hwm))
    assert metric.phases_ns.get("replay", 0) == telling.replayed
    assert metric.utt_ns == sum(plan.steps[number].step for number in telling.lost)
    assert metric.nof == sum(one.cause not in USERS for one in plan.failures)
    assert len(metric.attempts) == len(plan.failures) + (plan.ends != "failed")
    return metric


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 10**9))
def test_one_more_failure_never_raises_the_percentage(invariants, seed) -> None:
    """The life after it is shifted by the outage, the restart and the repeated steps."""
    fewer, more = drawn(random.Random(seed))
    before, after = known(fewer), known(more)
    invariants(before)
    invariants(after)
    assert after.effective_ns == before.effective_ns
    assert after.wall_ns >= before.wall_ns
    for name in ("ett_pct", "ett_pct_held"):
        one, two = getattr(before, name), getattr(after, name)
        assert one is None or two <= one, name
