"""Parts begin as soon as they may, errors name them, and each says what it waits for."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError, InitError
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.start.parallel import Parts, start
from airflow_ett.trainer.stepclock import StepClock

LONG = 30.0


class Journal:
    """Keeps events in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def emit(self, kind: str, data: dict[str, Any], *, time_ns: int = 0) -> None:
        self.events.append((kind, data))

    @property
    def phases(self) -> list[str]:
        return [data["phase"] for kind, data in self.events if kind == "phase_begin"]


class World:
    """A trainer's process in which parts are made."""

    def __init__(self) -> None:
        self.journal = Journal()
        clock = StepClock(
            self.journal,  # type: ignore[arg-type]
            (1, 0, 0, 0, 1),
            offset=0,
            on_edge=lambda: 1 << 62,
        )
        self._phases = Phases(self.journal, clock, 0)  # type: ignore[arg-type]

    def at_once(self, **parts: Callable[..., Any]) -> Parts:
        return self._make(parts)

    def in_turn(self, **parts: Callable[..., Any]) -> Parts:
        return self._make(parts, ETT_PARALLEL_INIT="0")

    def _make(self, parts: dict[str, Callable[..., Any]], **environ: str) -> Parts:
        levers = Levers(self.journal, environ)  # type: ignore[arg-type]
        return start(parts, self._phases, levers)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What holds a part back until the test opens it, or ends."""
    gate = threading.Event()
    yield gate
    gate.set()


def boom(*_: Any) -> Any:
    raise ValueError("boom")


def after(part: str) -> None:
    """Wait for the end of a part that has begun."""
    for thread in threading.enumerate():
        if thread.name == f"trainer_init.{part}":
            thread.join(LONG)


both = pytest.mark.parametrize("way", ["at_once", "in_turn"])


def test_independent_parts_are_made_at_once(world: World) -> None:
    barrier = threading.Barrier(3)
    made = world.at_once(a=lambda: barrier.wait(LONG), b=lambda: barrier.wait(LONG),
                      c=lambda: barrier.wait(LONG))  # fmt: skip
    assert {made.a, made.b, made.c} == {0, 1, 2}


def test_a_part_begins_as_soon_as_its_own_are_made(world: World, gate: threading.Event) -> None:
    def slow() -> str:
        assert gate.wait(LONG)  # only the part that waits for the fast one opens it
        return "slow"

    def behind(fast: str) -> str:
        gate.set()
        return f"behind {fast}"

    made = world.at_once(
        last=lambda slow, behind: (slow, behind), slow=slow, behind=behind, fast=lambda: "fast"
    )
    assert made == Parts(
        slow="slow", fast="fast", behind="behind fast", last=("slow", "behind fast")
    )


class Model:
    def __init__(self, data: str, width: int = 3, *more: Any, **others: Any) -> None:
        self.made = (data, width, more, others)

    def score(self, data: str) -> str:
        return f"score of {data}"


def by_position(data: str, builtin: int = 3, /) -> tuple[str, int]:
    return data, builtin


@both
def test_a_parameter_that_names_a_part_gets_it(world: World, way: str) -> None:
    made = getattr(world, way)(
        model=Model,
        given=functools.partial(Model, "own", width=4),
        method=Model("x").score,
        position=by_position,
        default=lambda data="own", width=5: (data, width),
        named=lambda *, data: data,
        all=lambda *data, **model: (data, model),
        builtin=dict,
        data=lambda: "data",
    )
    assert made.model.made == ("data", 3, (), {})
    assert made.given.made == ("own", 4, (), {})
    assert made.method == "score of data"
    assert made.position == ("data", 3)
    assert made.default == ("data", 5)
    assert made.named == "data"
    assert made.all == ((), {})
    assert made.builtin == {}


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (
            {"model": lambda dta: dta, "data": boom},
            "model: its parameter 'dta' names no part; parts are data, model",
        ),
        ({"a": lambda a: a}, "a: a waits for a"),
        ({"size": len}, "size: its parameter 'obj' names no part; parts are size"),
        ({"model": 7, "data": boom}, "model: must be a function that makes it, not 7"),
    ],
    ids=["unknown", "itself", "builtin", "no function"],
)
def test_what_cannot_be_made_is_refused_by_name(
    world: World, parts: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        world.at_once(**parts)
    assert str(caught.value) == told
    assert caught.value.parameter in parts
    assert world.journal.events == []


def test_parts_that_wait_for_each_other_are_refused(world: World) -> None:
    with pytest.raises(ConfigurationError) as caught:
        world.at_once(a=lambda b: b, b=lambda c: c, c=lambda a: a, d=boom)
    found = caught.value.problem.split(" waits for ")
    assert caught.value.parameter == found[0]
    assert set(itertools.pairwise(found)) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert world.journal.events == []


def test_errors_name_each_part_and_the_first_is_the_cause(
    world: World, gate: threading.Event
) -> None:
    ended = []

    def second() -> None:
        gate.set()
        after("first")
        raise OSError("away")

    def third() -> None:
        after("second")
        ended.append("third")

    with pytest.raises(InitError) as caught:
        world.at_once(
            first=lambda: (gate.wait(LONG), boom()),
            second=second,
            third=third,
            fourth=lambda first: ended.append("fourth"),
            fifth=lambda third: ended.append("fifth"),
        )
    told = "the start-up failed: first: ValueError: boom; second: OSError: away"
    assert str(caught.value) == told
    assert isinstance(caught.value.__cause__, ValueError)
    assert ended == ["third"]  # it had begun; what had not, was not
    assert "lever" not in [kind for kind, _ in world.journal.events]


def test_in_turn_the_first_error_is_the_only_one(world: World) -> None:
    with pytest.raises(InitError) as caught:
        world.in_turn(a=lambda: 1, b=boom, c=boom)
    assert str(caught.value) == "the start-up failed: b: ValueError: boom"
    assert isinstance(caught.value.__cause__, ValueError)


@both
def test_an_exit_passes(world: World, way: str) -> None:
    with pytest.raises(SystemExit, match="3"):
        getattr(world, way)(stop=lambda: sys.exit(3))


def test_an_exit_passes_before_errors_once_all_have_ended(world: World) -> None:
    ended = []
    with pytest.raises(SystemExit, match="3"):
        world.at_once(
            bad=boom, stop=lambda: sys.exit(3), other=lambda: (after("stop"), ended.append(1))
        )
    assert ended == [1]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What runs in the background of a shell ignores SIGINT."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_does_not_wait(world: World, gate: threading.Event) -> None:
    def part() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        gate.wait(LONG)

    with pytest.raises(KeyboardInterrupt):
        world.at_once(part=part)
    (thread,) = [t for t in threading.enumerate() if t.name == "trainer_init.part"]
    assert thread.daemon


def test_signals_are_handled_meanwhile(world: World, gate: threading.Event) -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: gate.set())
    try:
        made = world.at_once(
            part=lambda: (os.kill(os.getpid(), signal.SIGTERM), gate.wait(LONG))[1]
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert made.part


def test_parts_are_told_apart() -> None:
    parts = Parts(model=1, data=[2])
    assert repr(parts) == "Parts(model=1, data=[2])"
    with pytest.raises(AttributeError, match="there is no part 'mdel'; parts are data, model"):
        _ = parts.mdel
    with pytest.raises(AttributeError, match="parts are none"):
        _ = Parts().model


def test_no_parts_are_no_error(world: World) -> None:
    assert world.at_once() == Parts()


def test_in_turn_they_follow_as_they_were_written(world: World) -> None:
    order: list[str] = []
    world.in_turn(
        model=lambda data: order.append("model"),
        data=lambda: order.append("data"),
        optimizer=lambda model: order.append("optimizer"),
        metrics=lambda: order.append("metrics"),
    )
    assert order == ["data", "model", "optimizer", "metrics"]
    assert world.journal.phases == [f"trainer_init.{name}" for name in order]
    assert {data.get("lane", "main") for _, data in world.journal.events} == {"main"}
    (told,) = [data for kind, data in world.journal.events if kind == "lever"]
    assert (told["outcome"], told["reason"]) == ("off", "ETT_PARALLEL_INIT=0")
