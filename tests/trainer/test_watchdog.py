"""What counts as a stall, from looks at cursor records under a clock of the test's own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from airflow_ett.events import CursorRecord
from airflow_ett.trainer.watchdog import Stall, Watchdog

S = 1_000_000_000
EMPTY = CursorRecord(
    count=0, submission=1, scheduler_restart=0, elastic_restart=0, rank=0, pid=1, seq=0, cursor=0,
    hwm=0, from_ns=0, to_ns=0, cursor_from=0, steps=0, step_ns=0, wait_ns=0, other_ns=0, closed=0,
)  # fmt: skip


@dataclass
class Training:
    """Writes records as the step clock does, and is looked at every five seconds."""

    watchdog: Watchdog = field(default_factory=Watchdog)
    record: CursorRecord = EMPTY
    now: float = 0.0
    told: list[Stall] = field(default_factory=list)

    def write(self, **fields: int) -> None:
        self.record = replace(self.record, count=self.record.count + 1, **fields)

    def look(self, after_s: float = 5.0) -> None:
        self.now += after_s
        news = self.watchdog.look(self.record, self.now)
        self.told += [news] if news else []

    def train(self, looks: int, step_s: float = 0.1) -> None:
        """Steps of ``step_s`` for so many looks; an interval is closed at ten seconds."""
        for _ in range(looks):
            before, begin_ns = self.record, self.record.from_ns
            steps = int(5 / step_s)
            if before.to_ns - begin_ns >= 10 * S:
                before, begin_ns = replace(before, steps=0), before.to_ns
            to_ns = before.to_ns + int(steps * step_s * S)
            self.write(from_ns=begin_ns, to_ns=to_ns, steps=before.steps + steps)
            self.look()

    def hang(self, seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            self.look()


@pytest.fixture
def training() -> Training:
    return Training()


def test_half_a_minute_without_a_step_is_a_stall_from_the_last_one_on(training: Training) -> None:
    training.train(20)
    last = training.record.to_ns
    training.hang(30)
    assert training.told == []
    training.hang(10)
    assert training.told == [Stall(last)] == [training.watchdog.stall]
    training.hang(300)
    assert len(training.told) == 1


def test_it_is_over_where_the_step_that_hung_has_ended(training: Training) -> None:
    training.train(20)
    last = training.record.to_ns
    training.hang(60)
    training.write(from_ns=last + 61 * S, to_ns=last + 64 * S, steps=30)
    training.look()
    assert training.told[1:] == [Stall(last, last + 61 * S)]
    assert training.watchdog.stall is None
    training.hang(60)
    assert training.told[2:] == [Stall(last + 64 * S)]


def test_long_steps_may_take_ten_times_as_long(training: Training) -> None:
    for _ in range(10):  # each closes an interval: the record tells only when the last one ended
        for _ in range(4):
            training.look()
        at = training.record.to_ns + 20 * S
        training.write(from_ns=at, to_ns=at)
    training.look()
    assert training.watchdog.step_s == 20
    training.hang(200)
    assert training.told == []
    training.hang(10)
    assert training.told == [Stall(training.record.to_ns)]


def test_the_first_steps_have_five_minutes(training: Training) -> None:
    """A graph is captured, a library tunes itself; but the first collective may hang, too."""
    training.look()
    training.hang(300)
    assert training.told == []
    training.train(1)
    training.hang(300)
    assert training.told == []
    training.hang(10)
    assert training.told == [Stall(training.record.to_ns)]
    assert training.watchdog.step_s is None


@pytest.mark.parametrize("closed", [1, 2], ids=["in a phase", "after the loop"])
def test_outside_of_loops_and_in_phases_silence_means_nothing(
    training: Training, closed: int
) -> None:
    training.train(20)
    training.write(closed=closed)
    training.hang(7200)
    assert training.told == []
    at = training.record.to_ns + 7200 * S
    training.write(closed=0, from_ns=at, to_ns=at, steps=0)
    training.hang(40)
    assert training.told == [Stall(at)]


def test_a_phase_that_begins_ends_a_stall(training: Training) -> None:
    training.train(20)
    last = training.record.to_ns
    training.hang(60)
    training.write(closed=1, from_ns=last + 62 * S, to_ns=last + 62 * S)
    training.look()
    assert training.told[1:] == [Stall(last, last + 62 * S)]


def test_a_machine_that_was_suspended_did_not_hang(training: Training) -> None:
    training.train(20)
    training.look(after_s=8 * 3600)
    training.look()
    assert training.told == []


def test_a_record_that_cannot_be_read_is_no_evidence(training: Training) -> None:
    training.train(20)
    training.hang(20)
    assert training.watchdog.look(None, training.now + 5) is None
    training.now += 5
    training.hang(30)
    assert training.told == []
    training.hang(15)
    assert len(training.told) == 1
    assert training.watchdog.look(None, training.now + 5) is None
    training.hang(60)
    assert len(training.told) == 1
    assert training.watchdog.stall is not None


def test_where_less_is_a_stall_it_looks_more_often() -> None:
    assert Watchdog().period_s == 5
    assert Watchdog(3).period_s == pytest.approx(0.5)
