"""Trainers stopped and woken up between any two file operations: an older one never gets through.

Each trainer is a thread that makes one file operation when the schedule says so, so that every
interleaving can be tried, and tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_ett.checkpoints.lease import Lease
from airflow_ett.checkpoints.leasefiles import FolderFiles, LeaseFiles, Offer, PlacedFiles, Taken
from airflow_ett.storage import FolderStorage
from tests.trainer.places import MemoryPlace

ROOT = Path("/bucket/job")
HOLDS = 4
WAIT_S = 30.0


class Asked(NamedTuple):
    """A trainer has asked: when the question began and ended, and whether it may commit."""

    launch: int
    begun: int
    ended: int
    granted: bool


class Trainer:
    """Asks for the lease again and again, one file operation a step."""

    def __init__(self, lease: Callable[[LeaseFiles], Lease], files: LeaseFiles, launch: int):
        self.launch = launch
        self.over = False
        self.asked: list[Asked] = []
        self.lease = lease(Stepped(files, self._wait))
        self._fault = ""
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._clock: Callable[[], int] = lambda: 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._thread.start()
        assert self._done.acquire(timeout=WAIT_S)

    def step(self, fault: str = "") -> None:
        """Have one operation made; ``fault``: it does not arrive (away), or its answer (lost)."""
        if not self.over:
            self._fault = fault
            self._go.release()
            assert self._done.acquire(timeout=WAIT_S)

    def _wait(self) -> str:
        if self.over:
            return ""
        self._done.release()
        assert self._go.acquire(timeout=WAIT_S)
        return self._fault

    def _run(self) -> None:
        for _ in range(HOLDS):
            begun = self._clock()
            try:
                granted = self.lease.hold() is None
            except OSError:
                granted = False
            self.asked.append(Asked(self.launch, begun, self._clock(), granted))
        self.over = True
        self._done.release()


class Stepped:
    """Lease files that wait for their turn before each operation."""

    def __init__(self, files: LeaseFiles, wait: Callable[[], str]) -> None:
        self._files = files
        self._wait = wait

    def name(self, number: int) -> str:
        return self._files.name(number)

    def numbers(self) -> list[int]:
        return self._do(self._files.numbers)

    def read(self, number: int) -> Taken | None:
        return self._do(lambda: self._files.read(number))

    def beat(self, number: int) -> bool:
        return self._do(lambda: self._files.beat(number))

    @contextmanager
    def offer(self, content: bytes) -> Iterator[Offer]:
        with self._files.offer(content) as offer:
            take = offer.take
            yield Offer(
                lambda: self._do(offer.now_ns), lambda number: self._do(lambda: take(number))
            )

    def clear(self, before: int) -> None:
        self._do(lambda: self._files.clear(before))

    def _do(self, act: Callable[[], Any]) -> Any:
        fault = self._wait()
        if fault == "away":
            raise OSError("the place is away")
        found = act()
        if fault == "lost":
            raise OSError("the answer got lost")
        return found


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["", "", "", "", "", "away", "lost"])),
    max_size=60,
)


@pytest.mark.parametrize("kind", ["folder", "memory", "placed folder"])
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(launches=st.lists(st.integers(1, 3), min_size=3, max_size=3), steps=STEPS)
def test_whoever_is_stopped_when_and_for_how_long_an_older_launch_never_gets_through(
    tmp_path_factory: pytest.TempPathFactory,
    holder: Any,
    kind: str,
    launches: list[int],
    steps: list[tuple[int, str]],
) -> None:
    root = tmp_path_factory.mktemp("lease")
    files: LeaseFiles = FolderFiles(root)
    if kind != "folder":
        files = PlacedFiles(MemoryPlace() if kind == "memory" else FolderStorage(root))
    trainers = [Trainer(lambda its, n=n: Lease(ROOT, holder(n), its), files, n) for n in launches]
    made = 0

    def clock() -> int:
        return made

    for trainer in trainers:
        trainer.begin(clock)
    for number, fault in steps:
        made += 1
        trainers[number].step(fault)
    while not all(trainer.over for trainer in trainers):
        for trainer in trainers:
            made += 1
            trainer.step()
    asked = [one for trainer in trainers for one in trainer.asked]
    for older in asked:
        for newer in asked:
            followed = newer.granted and newer.launch > older.launch
            assert not (older.granted and followed and older.begun >= newer.ended)
    # All is quiet now: one goes on, of the latest launch.
    for _ in range(2):
        left = [trainer.launch for trainer in trainers if trainer.lease.hold() is None]
    assert left == [max(launches)]
