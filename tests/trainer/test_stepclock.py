"""The step clock against a fake clock: no nanosecond is lost, whatever a loop does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import CursorFile
from airflow_ett.trainer import phases as phases_module
from airflow_ett.trainer import stepclock as clock_module
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.stepclock import INTERVAL_NS, StepClock

_FAR = 1 << 62


class FakeJournal:
    """Keeps events in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any], int]] = []
        self.reserved = 0
        self.warnings: list[str] = []

    def emit(self, kind: str, data: Any = None, *, time_ns: int = 0, seq: int = 0) -> None:
        self.events.append((str(kind), dict(data or {}), time_ns))

    def reserve(self) -> int:
        self.reserved += 1
        return self.reserved

    def release(self, seq: int) -> None:
        pass

    def warn(self, problem: str, error: BaseException) -> None:
        self.warnings.append(f"{problem}: {error!r}")


class World:
    """A loop whose time passes only when it says so."""

    def __init__(self, hwm: int = 0) -> None:
        self.now = 1_000
        self.journal = cast(Any, FakeJournal())
        clock_module._mono = lambda: self.now
        vars(phases_module)["time"] = self
        self.clock = StepClock(self.journal, (1, 0, 0, 0, 1), offset=0, on_edge=lambda: _FAR)
        self.clock.keep(None, hwm)
        self.phases = Phases(self.journal, self.clock, 0)

    def monotonic_ns(self) -> int:
        return self.now

    def pass_(self, ns: int) -> None:
        self.now += ns

    @property
    def intervals(self) -> list[dict[str, Any]]:
        return [data for kind, data, _ in self.journal.events if kind == "interval"]

    def pieces(self) -> list[tuple[int, int]]:
        ends = {d["span"]: t for k, d, t in self.journal.events if k == "phase_end"}
        begins = [(t, d["span"]) for k, d, t in self.journal.events if k == "phase_begin"]
        spans = [(begin, ends.get(span, self.now)) for begin, span in begins]
        return sorted([*((i["from"], i["to"]) for i in self.intervals), *spans])


@pytest.fixture(autouse=True)
def _real_clocks() -> Iterator[None]:
    mono, module = clock_module._mono, vars(phases_module)["time"]
    yield
    clock_module._mono, vars(phases_module)["time"] = mono, module


_LENGTH = st.integers(0, 50)
_BODY = st.lists(st.tuples(st.sampled_from(["work", "phase", "nested"]), _LENGTH), max_size=4)
_STEP = st.lists(st.tuples(st.just("step"), st.integers(1, 50)), max_size=1)
_ACTIONS = st.tuples(_BODY, _STEP, _BODY).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(_LENGTH, _ACTIONS), max_size=8), st.integers(0, 60), st.booleans())
def test_every_nanosecond_lies_in_an_interval_or_a_phase(
    batches: list[tuple[int, Any]], hwm: int, broken_off: bool
) -> None:
    world = World(hwm)

    def loader() -> Iterator[Any]:
        for wait, actions in batches:
            world.pass_(wait)
            yield actions

    def request() -> Iterator[Any]:
        world.clock.request(None)
        return loader()

    begun = world.now
    samples = steps = 0
    for number, actions in enumerate(world.clock.track(request)):
        for action, ns in actions:
            world.pass_(ns)
            if action == "step":
                samples, steps = samples + 7, steps + 1
                world.clock.step(samples)
            elif action in ("phase", "nested"):
                with world.phases.begin("evaluation"):
                    world.pass_(ns)
                    if action == "nested":
                        with world.phases.begin("compile"):
                            world.pass_(3)
        if broken_off and number == 3:
            break
    world.pass_(5)
    world.clock.leave_loop()
    world.phases.begin("shutdown")
    world.pass_(2)
    reached = begun
    for begin, end in world.pieces():
        assert begin <= reached, "a gap"
        reached = max(reached, end)
    assert reached == world.now
    assert sum(i["steps"] for i in world.intervals) == steps
    for i in world.intervals:
        assert i["step_ns"] + i["wait_ns"] + i["other_ns"] == i["to"] - i["from"] > 0
        assert min(i["step_ns"], i["wait_ns"], i["other_ns"]) >= 0
        crosses = i["cursor_from"] < hwm < i["cursor_to"]
        assert not crosses or i["steps"] == 1


def test_intervals_are_closed_every_ten_seconds() -> None:
    world = World()
    world.clock.request(None)
    for number, _ in enumerate(world.clock.track(lambda: range(100)), start=1):
        world.pass_(INTERVAL_NS // 4)
        world.clock.step(number)
    lengths = {i["to"] - i["from"] for i in world.intervals[1:]}
    assert lengths == {INTERVAL_NS}


def test_untracked_steps_reach_from_step_to_step() -> None:
    world = World(hwm=100)
    world.pass_(500)  # before the first step nothing is known
    for number in range(1, 4):
        world.clock.step(number)
        world.pass_(10)
    world.clock.edge(world.now)
    (steps, begun) = world.intervals
    assert (steps["from"], steps["step_ns"], steps["steps"]) == (1_500, 20, 2)
    assert (begun["step_ns"], begun["fragment"]) == (10, True)


def test_a_cursor_that_goes_back_has_an_interval_of_its_own() -> None:
    world = World()
    world.clock.request(None)
    for samples in world.clock.track(lambda: [10, 20, 30, 5, 15, 40]):
        world.pass_(10)
        world.clock.step(samples)
    world.clock.edge(world.now)
    bounds = [(i["cursor_from"], i["cursor_to"], i["steps"]) for i in world.intervals]
    assert bounds == [(0, 10, 1), (10, 30, 2), (30, 5, 1), (5, 15, 1), (15, 40, 1)]
    assert world.clock.hwm == 40


def test_a_second_loader_goes_on_where_the_first_ended() -> None:
    world = World()
    for _ in range(2):

        def request() -> range:
            world.clock.request(None)
            return range(1, 4)

        for samples in world.clock.track(request):
            world.pass_(10)
            world.clock.step(samples)
    assert world.clock.cursor == 6


class _Zero:
    """What a 0-dimensional float tensor is to Python: no index, but a float."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __index__(self) -> int:
        raise TypeError("only integer tensors can be converted to an index")

    def __float__(self) -> float:
        return self.value


class _Broken:
    def __float__(self) -> float:
        raise RuntimeError("CUDA error")


@pytest.fixture
def filed(tmp_path: Path) -> World:
    """A world whose clock keeps its cursor in a real file, in which any number must fit."""
    world = World()
    world.clock.keep(CursorFile(tmp_path / "cursor"), 0)
    return world


@pytest.mark.parametrize("five", [5, 5.0, np.int64(5), np.float32(5), np.array(5), _Zero(5.0)])
def test_whatever_is_a_whole_number_counts(filed: World, five: Any) -> None:
    def request() -> range:
        filed.clock.request(five)
        return range(2)

    for _ in filed.clock.track(request):
        filed.pass_(10)
        filed.clock.step(five)
    filed.clock.edge(filed.now)
    assert filed.clock.cursor == 10
    assert type(filed.clock.cursor) is int
    assert sum(i["steps"] for i in json.loads(json.dumps(filed.intervals))) == 2
    assert filed.journal.warnings == []


@pytest.mark.parametrize(
    "odd", [None, 2**63, 2**62, 10**400, -6, 5.5, float("nan"), float("inf"), "x", [], _Broken()]
)
@pytest.mark.parametrize("tracked", [True, False])
def test_a_number_that_makes_no_cursor_moves_nothing_and_kills_nothing(
    filed: World, odd: Any, tracked: bool
) -> None:
    clock = filed.clock

    def request() -> range:
        clock.request(5)
        return range(3)

    for number in clock.track(request) if tracked else range(3):
        filed.pass_(10)
        clock.step(odd if number else 1)
    clock.request(odd)
    clock.edge(filed.now)
    assert clock.cursor == (6 if tracked else 1)
    assert all(type(i["cursor_to"]) is int for i in filed.intervals)
    assert sum(i["steps"] for i in filed.intervals) == (3 if tracked else 2)
    assert filed.journal.warnings


def test_a_step_costs_less_than_25_readings_of_the_clock(tmp_path: Path) -> None:
    """That is about a microsecond, in a measure of the machine's own; the least of short rounds,
    which a busy machine leaves undisturbed now and then."""
    steps = 1_000
    clock = StepClock(cast(Any, FakeJournal()), (1, 0, 0, 0, 1), offset=0, on_edge=lambda: _FAR)
    clock.keep(CursorFile(tmp_path / "cursor"), 0)

    def request() -> range:
        clock.request(None)
        return range(1, steps + 1)

    def train() -> None:
        for samples in clock.track(request):
            clock.step(samples)

    def read() -> None:
        for _ in range(steps):
            time.monotonic_ns()

    def took(run: Callable[[], None]) -> int:
        begin = time.perf_counter_ns()
        run()
        return time.perf_counter_ns() - begin

    rounds = [(took(train), took(read)) for _ in range(100)]
    assert min(ours for ours, _ in rounds) < 25 * min(readings for _, readings in rounds)
