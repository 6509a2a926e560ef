"""What must hold for any log that a bad day can produce."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import AttemptId, Event, Kind, decode, encode
from airflow_ett.metric import measure

TIMES = ("from", "to", "begin", "end", "allocated_ns", "started_ns", "ended_ns", "duration_ns")
CURSORS = ("cursor_from", "cursor_to", "cursor", "hwm", "cursor_hwm")
FIELDS: dict[str, list[Any]] = {
    **{name: [*range(60)] for name in TIMES},
    **{name: [*range(30)] for name in ("step_ns", "wait_ns", "other_ns", "blocking_ns")},
    **{name: [*range(9)] for name in CURSORS},
    **{name: [1, 2, 3] for name in ("submission", "try", "steps")},
    "restart": [-1, 0, 1],
    "fragment": [True, False],
    "exit_code": [0, 1],
    "span": ["a", "b", "c"],
    "lane": ["main", "main", "side"],
    "phase": ["compile", "first_batch", "shutdown", "evaluation", "train", "mine", "queue"],
    "cause": [None, "preempted", "application", "user_restart", "user_cancelled"],
    "state": ["RUNNING", "succeeded", "failed", "cancelled"],
    "outcome": ["success", "error"],
    "checkpoint": ["c1", "c2"],
    "scheduler": ["local_detached", "slurm"],
    "inherit": [{"hwm": 3}, None],
}
JUNK: list[Any] = [None, True, -1, 2**80, 1.5, "x", [], {}]
KINDS = [kind.value for kind in Kind if kind != Kind.JOB_ENDED]
KINDS += ["interval", "phase_begin", "phase_end"] * 4 + ["submitted", "of_the_future"]


def chaos(seed: int) -> list[Event]:
    """Any kinds in any order, under numbers that collide, from clocks that agree on nothing."""
    choose = random.Random(seed)

    def event(writer: str, seq: int, kind: str) -> Event:
        data = {
            name: choose.choice(JUNK if choose.random() < 0.04 else values)
            for name, values in FIELDS.items()
        }
        attempt = AttemptId(choose.randint(1, 3), choose.randint(0, 1), choose.randint(0, 1))
        name = None if choose.random() < 0.1 else attempt
        rank = choose.choice([None, 0, 0, 1, 2])
        return Event("j", writer, seq, choose.randint(0, 60), kind, name, rank, data)

    events = [
        event(choose.choice(["w1", "w2"]), choose.randint(0, 30), choose.choice(KINDS))
        for _ in range(choose.randint(0, 30))
    ]
    return events + [event("end", 0, "job_ended")] * choose.randint(0, 1)


class Story:
    """A plausible life with random lengths: attempts that start, train, save and end somehow."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.events: list[Event] = []
        self.now = 100
        self.cursor = self.hwm = self.saved = 0

    def add(self, kind: str, attempt: AttemptId | None, rank: int | None, **fields: Any) -> None:
        writer = "launcher" if rank is None else f"t{attempt}-{rank}"
        seq = sum(event.writer == writer for event in self.events)
        self.events.append(Event("j", writer, seq, self.now, kind, attempt, rank, fields))

    def wait(self, most: int = 9) -> int:
        length = self.random.randint(0, most)
        self.now += length
        return length

    def tell(self) -> list[Event]:
        choose = self.random
        scheduler = choose.choice(["slurm", "local"])
        self.add("job_opened", None, None, scheduler=scheduler, accelerators=2)
        number, restart, elastic, count = 1, 0, 0, choose.randint(1, 5)
        for at in range(count):
            attempt = AttemptId(number, restart, elastic)
            cause = None if at == count - 1 and choose.random() < 0.6 else "preempted"
            self.attempt(attempt, cause, choose.random() < 0.8)
            self.wait()
            step = choose.randint(0, 2)
            number, restart, elastic = (
                (number + 1, 0, 0)
                if step == 0
                else (number, restart + 1, 0)
                if step == 1
                else (number, restart, elastic + 1)
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
            for rank in range(choose.randint(1, 2)):
                self.wait()
                self.add("process_started", attempt, rank)
                self.add("session_started", attempt, rank, cursor_hwm=self.hwm)
            self.phase(attempt, "first_batch")
            self.cursor = min(self.saved, self.cursor)
            for _ in range(choose.randint(0, 6)):
                self.steps(attempt)
                if choose.random() < 0.3:
                    self.phase(attempt, choose.choice(["compile", "evaluation", "own"]))
                if choose.random() < 0.3:
                    self.saved = self.cursor
                    fields = {"checkpoint": f"c{self.cursor}", "cursor": self.cursor}
                    self.add("checkpoint_saved", attempt, 0, blocking_ns=1, **fields)
                    self.add("checkpoint_committed", attempt, 0, **fields)
            if cause is None:
                self.add("session_ended", attempt, 0, outcome="success")
        self.wait()
        self.add("attempt_ended", attempt, None, cause=cause)

    def phase(self, attempt: AttemptId, name: str) -> None:
        span = str(len(self.events))
        self.add("phase_begin", attempt, 0, span=span, phase=name)
        self.wait()
        self.add("phase_end", attempt, 0, span=span)

    def steps(self, attempt: AttemptId) -> None:
        begin, cursor = self.now, self.cursor
        wait, step, other = self.wait(3), self.wait(), self.wait(3)
        steps = self.random.randint(1, 4)
        self.cursor += steps
        self.hwm = max(self.hwm, self.cursor)
        lengths = {"wait_ns": wait, "step_ns": step, "other_ns": other, "steps": steps}
        cursors = {"cursor_from": cursor, "cursor_to": self.cursor}
        span = {"from": begin, "to": self.now}
        self.add("interval", attempt, 0, **span, **cursors, **lengths)


def bad_days(seed: int) -> list[Event]:
    """A plausible life of which events are lost, and one writer's clock is wrong."""
    choose = random.Random(seed)
    events = Story(seed).tell()
    events = choose.sample(events, max(1, len(events) - choose.randint(0, 5)))
    wrong, by = choose.choice(events).writer, choose.randint(-40, 40)
    return [_moved(event, by) if event.writer == wrong else event for event in events]


def _moved(event: Event, by: int) -> Event:
    moved = {
        name: max(0, value + by) if name in ("from", "to", "allocated_ns") else value
        for name, value in event.data.items()
    }
    time = max(0, event.time_ns + by)
    return Event(
        event.job, event.writer, event.seq, time, event.kind, event.attempt, event.rank, moved
    )


SEEDS = st.integers(0, 10**9)
HISTORIES = st.one_of(SEEDS.map(chaos), SEEDS.map(bad_days))


@settings(max_examples=400, deadline=None)
@given(
    HISTORIES, st.one_of(st.none(), st.integers(0, 500)), st.one_of(st.none(), st.integers(0, 500))
)
def test_every_sum_is_the_wall_clock(invariants, events, now, sign) -> None:
    invariants(measure(events, now_ns=now, last_sign_ns=sign))


@settings(max_examples=200, deadline=None)
@given(HISTORIES, st.randoms(use_true_random=False))
def test_order_and_copies_change_nothing(events, rng) -> None:
    shuffled = [*events, *rng.sample(events, len(events) // 2)]
    rng.shuffle(shuffled)
    assert measure(shuffled) == measure(events)


@settings(max_examples=200, deadline=None)
@given(HISTORIES, st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_frozen_result_never_depends_on_the_present(events, now, sign) -> None:
    result = measure(events)
    if result.frozen:
        assert measure(events, now_ns=now, last_sign_ns=sign) == result


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_an_honest_log_is_measured_exactly(seed) -> None:
    """Without loss and skew, train and replay are what the story told, however it went."""
    events = Story(seed).tell()
    result = measure([decode(encode(event)) for event in events])
    told = [event.data for event in events if event.kind == "interval"]
    stepped = result.phases_ns.get("train", 0) + result.phases_ns.get("replay", 0)
    assert stepped == sum(data["step_ns"] for data in told)
    assert result.phases_ns.get("data_wait", 0) == sum(data["wait_ns"] for data in told)
    ended = [event for event in events if event.kind == "attempt_ended"]
    assert result.nof == sum(event.data["cause"] == "preempted" for event in ended)
    assert not [reason for reason in result.quality_reasons if "missing" in reason]
