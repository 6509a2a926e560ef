"""Parts of a training that are made at the same time, each in a thread of its own.

A part is a sub-stage of the start-up, a phase on a lane of its own: ``trainer_init.<name>``, or its
bare name where that is one of :data:`PHASES`. The main lane waits, and books its wait to the parts
that it could not have gone on without: the one that ended last, before it the one that this one
waited for longest, and so on to the begin. So the main lane's time is whole, and a part that was
made in another one's shadow costs nothing there. What is compiled within a part counts as the part.

A thread gets the caller's context variables and, of torch's settings that each thread has of its
own, grad mode, default device and current CUDA device. Autocast, inference mode and CUDA streams it
does not get, and what a part sets of all these ends with it: set them before. Default dtype,
number of threads, determinism and random numbers are the process's.
"""

from __future__ import annotations

import contextvars
import inspect
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from inspect import Parameter
from types import SimpleNamespace
from typing import Any

from airflow_ett.errors import ConfigurationError, InitError
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.phases import Phases

PHASES = frozenset(
    {
        "device_init",
        "process_group_init",
        "preproc_creation",
        "train_module_creation",
        "init_plugins",
        "pre_train",
        "checkpoint_restore",
    }
)
"""Names of parts that are the metric's own names for what a trainer does at its start."""

_LEVER = "parallel_init"


class Parts(SimpleNamespace):
    """The parts that were made, by name."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no part {name!r}; parts are {_listed(vars(self))}")


def start(parts: Mapping[str, Callable[..., Any]], phases: Phases, levers: Levers) -> Parts:
    """Make all parts, each once those that its parameters name are made.

    A parameter that names a part gets it. Others need a default, and keep it. Once a part has
    failed no other is begun, and those that were are waited for.

    Raises :class:`InitError` that names each part that failed, :class:`ConfigurationError` that
    names the part that cannot be made. What is no ``Exception``, such as ``SystemExit``, passes.
    """
    plan = _Plan([_Part(name, make, parts) for name, make in parts.items()])
    begin = time.monotonic_ns()
    if levers.on(_LEVER):
        try:
            _at_once(plan, phases)
        finally:
            _book(plan.critical(), begin, phases)
        took_ns = time.monotonic_ns() - begin
        work_ns = sum(part.ended - part.begun for part in plan.ended)
        if not plan.failed:
            several = "1 part" if len(parts) == 1 else f"{len(parts)} parts"
            reason = f"{several}, {work_ns / 1e9:.1f} s of work in {took_ns / 1e9:.1f} s"
            levers.tell(_LEVER, "used", reason, duration_ns=took_ns)
    else:
        while part := plan.next():
            part.run(plan.needs(part), phases)
            plan.take(part)
    _raise(plan.failed)
    return Parts(**{part.name: part.value for part in plan.parts})


class _Part:
    """One part: what it waits for, and what became of it. Times are monotonic nanoseconds."""

    def __init__(self, name: str, make: Callable[..., Any], parts: Collection[str]) -> None:
        if not callable(make):
            raise ConfigurationError(name, f"must be a function that makes it, not {make!r}")
        self.name = name
        self.phase = name if name in PHASES else f"trainer_init.{name}"
        self._make = make
        self._by_position, self._by_name = _waits(name, make, parts)
        self.begun = self.ended = 0
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def waits(self) -> list[str]:
        """The names of the parts that it waits for."""
        return self._by_position + self._by_name

    def run(
        self, made: Mapping[str, Any], phases: Phases, settle: Callable[[], None] | None = None
    ) -> None:
        """Make it of the parts that it waits for; an error is kept for whoever waits for it.

        ``settle`` prepares the thread.
        """
        span = phases.begin(self.phase)
        try:
            if settle is not None:
                settle()
            self.value = self._make(
                *(made[name] for name in self._by_position),
                **{name: made[name] for name in self._by_name},
            )
        except BaseException as error:
            self.error = error
        self.begun, self.ended = span.begin, span.begin + span.end()


class _Plan:
    """All parts: which one may begin next, and in which order they ended."""

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.ended: list[_Part] = []
        self._waiting = list(parts)
        self._of = {part.name: part for part in parts}
        self._made: dict[str, Any] = {}
        try:
            TopologicalSorter({part.name: part.waits for part in parts}).prepare()
        except CycleError as error:
            cycle = error.args[1][::-1]
            raise ConfigurationError(cycle[0], " waits for ".join(cycle)) from None

    @property
    def failed(self) -> list[_Part]:
        """The parts that failed, the first one first."""
        return [part for part in self.ended if part.error is not None]

    def next(self) -> _Part | None:
        """Return the first declared part that has not begun and may; None after a failure."""
        for part in [] if self.failed else self._waiting:
            if self._made.keys() >= set(part.waits):
                self._waiting.remove(part)
                return part
        return None

    def needs(self, part: _Part) -> dict[str, Any]:
        """Return the values that a part waits for."""
        return {name: self._made[name] for name in part.waits}

    def take(self, part: _Part) -> None:
        """A part has ended."""
        self.ended.append(part)
        self._made[part.name] = part.value

    def critical(self) -> list[_Part]:
        """Return the chain of parts, each of which waited for the one before, that ended last."""
        found: list[_Part] = []
        before = self.ended
        while before:
            found.append(max(before, key=lambda part: part.ended))
            before = [self._of[name] for name in found[-1].waits]
        return found[::-1]


def _at_once(plan: _Plan, phases: Phases) -> None:
    """Run each part in a thread as soon as it may begin; return when all that began have ended.

    The threads are daemons: an interrupted start ends at once.
    """
    settle = _settings()
    ended: queue.SimpleQueue[_Part] = queue.SimpleQueue()

    def run(part: _Part, needs: Mapping[str, Any]) -> None:
        try:
            part.run(needs, phases, settle)
        finally:
            ended.put(part)

    running = 0
    while True:
        while part := plan.next():
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run,
                args=(run, part, plan.needs(part)),
                name=part.phase,
                daemon=True,
            ).start()
            running += 1
        if not running:
            return
        plan.take(ended.get())
        running -= 1


def _settings() -> Callable[[], None]:
    """Return what gives another thread those of this thread's settings of torch that matter."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "get_default_device"):  # not imported, or just being
        return lambda: None
    grad, device = torch.is_grad_enabled(), torch.get_default_device()
    cuda = torch.cuda.current_device() if torch.cuda.is_initialized() else None

    def settle() -> None:
        torch.set_grad_enabled(grad)
        if torch.get_default_device() != device:  # setting one slows each call
            torch.set_default_device(device)
        if cuda is not None:
            torch.cuda.set_device(cuda)

    return settle


def _book(chain: list[_Part], begin: int, phases: Phases) -> None:
    """Book the caller's lane from ``begin`` on to a chain of parts, without a gap."""
    for part in chain:
        phases.end(phases.begin(part.phase, at=begin), at=part.ended)
        begin = part.ended


def _waits(
    name: str, make: Callable[..., Any], parts: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the parts that a part is given by position, and those by name.

    What has no signature, as some builtins, waits for nothing.
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return [], []
    by_position, by_name = [], []
    for one in parameters:
        if one.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        required = one.default is Parameter.empty
        if one.name not in parts:
            if required:
                problem = f"its parameter {one.name!r} names no part; parts are {_listed(parts)}"
                raise ConfigurationError(name, problem)
        elif one.kind is not Parameter.POSITIONAL_ONLY:
            by_name.append(one.name)
        elif required:  # those with a default come behind, and keep it
            by_position.append(one.name)
    return by_position, by_name


def _raise(failed: list[_Part]) -> None:
    errors = {part.name: part.error for part in failed if part.error is not None}
    for error in errors.values():
        if not isinstance(error, Exception):
            raise error
    if errors:
        told = [f"{name}: {type(error).__name__}: {error}" for name, error in errors.items()]
        raise InitError("the start-up failed: " + "; ".join(told)) from next(iter(errors.values()))


def _listed(parts: Collection[str]) -> str:
    return ", ".join(sorted(parts)) or "none"
