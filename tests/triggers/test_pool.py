"""The pools: bounded, in order, and no hindrance to a triggerer that stops."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest

from airflow_ett.triggers.pool import Pool

LIMIT_S = 10


class Gate:
    """Calls that wait until they are let through, and count how many are inside."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.inside = threading.Semaphore(0)
        self.threads: set[str] = set()

    def __call__(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.inside.release()
        assert self.opened.wait(LIMIT_S)

    def entered(self, count: int) -> None:
        for _ in range(count):
            assert self.inside.acquire(timeout=LIMIT_S)


def test_no_more_threads_than_its_size_and_no_more_than_needed() -> None:
    pool, gate = Pool("few", 3), Gate()
    for _ in range(2):
        pool.submit(int).result(LIMIT_S)
    calls = [pool.submit(gate) for _ in range(8)]
    gate.entered(3)
    assert not gate.inside.acquire(timeout=0.1)
    gate.opened.set()
    for call in calls:
        call.result(LIMIT_S)
    assert gate.threads == {"few-1", "few-2", "few-3"}


def test_calls_come_in_order_and_one_that_is_cancelled_in_time_never() -> None:
    pool, gate, said = Pool("one", 1), Gate(), list[int]()

    def say(number: int) -> Future[None]:
        return pool.submit(lambda: said.append(number))

    blocking = pool.submit(gate)
    gate.entered(1)
    waiting = [say(number) for number in range(4)]
    assert waiting[1].cancel()
    assert not blocking.cancel()
    gate.opened.set()
    waiting[3].result(LIMIT_S)
    assert said == [0, 2, 3]


def test_what_a_call_raises_reaches_its_caller_and_the_thread_goes_on() -> None:
    pool = Pool("one", 1)
    with pytest.raises(SystemExit):
        pool.submit(sys.exit).result(LIMIT_S)
    assert pool.submit(lambda: threading.current_thread().name).result(LIMIT_S) == "one-1"


def test_a_call_sees_its_callers_context() -> None:
    """Airflow finds the trigger of a log line by it."""
    variable = contextvars.ContextVar("variable", default="none")
    pool = Pool("one", 1)
    for value in ("a", "b"):
        variable.set(value)
        assert pool.submit(variable.get).result(LIMIT_S) == value


def test_several_event_loops_share_a_pool() -> None:
    pool = Pool("one", 1)

    async def ask() -> int:
        return await asyncio.wrap_future(pool.submit(lambda: 7))

    assert [asyncio.run(ask()) for _ in range(2)] == [7, 7]


def test_a_call_that_hangs_keeps_no_process_from_ending() -> None:
    code = (
        "import time\n"
        "from airflow_ett.triggers.pool import Pool\n"
        "Pool('one', 1).submit(lambda: time.sleep(60))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
