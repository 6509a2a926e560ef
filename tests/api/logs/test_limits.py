"""Rates and slow bodies: one job takes nothing from another, and nothing grows without bound."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi import HTTPException
from starlette.requests import Request

from airflow_ett.api import bodies, guard, limits
from airflow_ett.api.guard import Desk
from airflow_ett.api.limits import Limiter, Rate
from airflow_ett.store import upgrade
from tests.api.logs.conftest import JOB
from tests.api.server import PREFIX, Api, serving


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_job_may_burst_and_then_has_its_rate() -> None:
    clock = Clock()
    limiter = Limiter(Rate(2, 4), Rate(1000, 1000), clock)
    assert [limiter.wait_s("a") for _ in range(6)] == [0, 0, 0, 0, 1, 1]
    assert limiter.wait_s("b") == 0
    clock.now += 0.4
    assert limiter.wait_s("a") == 1
    clock.now += 0.1
    assert [limiter.wait_s("a") for _ in range(2)] == [0, 1]
    clock.now += 3600
    assert [limiter.wait_s("a") for _ in range(6)] == [0, 0, 0, 0, 1, 1]
    clock.now -= 10
    assert limiter.wait_s("a") == 1


def test_a_server_has_a_rate_for_all_jobs_together() -> None:
    clock = Clock()
    limiter = Limiter(Rate(100, 100), Rate(0.1, 3), clock)
    assert [limiter.wait_s(job) for job in "abcd"] == [0, 0, 0, 10]
    # Who was sent away has lost nothing of its own.
    clock.now += 10
    assert [limiter.wait_s("d"), limiter.wait_s("a")] == [0, 10]


def test_of_many_jobs_the_silent_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_BEARERS", 3)
    limiter = Limiter(Rate(0.001, 1), Rate(1000, 1000), Clock())
    for job in range(50):
        assert limiter.wait_s(job) == 0
    assert len(limiter._bearers) == 3
    assert limiter.wait_s(49) > 0
    assert limiter.wait_s(0) == 0


def test_what_waited_too_long_for_its_turn_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database is locked: who gave up meanwhile may have written something newer."""
    monkeypatch.setattr(guard, "_TURN_S", 0.1)
    over, begun, late = threading.Event(), threading.Barrier(guard._THREADS + 1), []
    desk = Desk(lambda: None, Limiter())  # type: ignore[arg-type, return-value]
    desk._checked_at = time.monotonic()

    def block(_: object) -> None:
        begun.wait(30)
        over.wait(30)

    async def ask() -> None:
        blocked = [asyncio.ensure_future(desk.run(block)) for _ in range(guard._THREADS)]
        await asyncio.to_thread(begun.wait, 30)
        waiting = asyncio.ensure_future(desk.run(late.append))
        await asyncio.sleep(0.2)
        over.set()
        with pytest.raises(HTTPException) as raised:
            await waiting
        assert (raised.value.status_code, raised.value.headers) == (503, {"Retry-After": "2"})
        await asyncio.gather(*blocked)

    asyncio.run(ask())
    assert late == []


@pytest.fixture
def database(tmp_path: Path) -> str:
    """An empty database; these limits know nothing of its kind."""
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    return url


@pytest.fixture
def narrow(database: str) -> Iterator[Api]:
    """A server that takes two requests a second of a job's launchers, and as many of trainers."""
    with serving(database, limiter=Limiter(Rate(2, 2), Rate(1000, 1000))) as api:
        yield api


def test_a_trainer_in_a_hurry_cannot_shut_its_launcher_out(narrow: Api) -> None:
    """It is told when to come again; who comes then is let in, as this client does by itself."""
    host = urlsplit(narrow.base).netloc
    answers = []
    for _ in range(4):
        connection = http.client.HTTPConnection(host, timeout=20)
        headers = {"Authorization": f"Bearer {narrow.token(JOB, 'trainer')()}"}
        connection.request("GET", f"{PREFIX}/clock", headers=headers)
        answers.append(connection.getresponse())
        connection.close()
    assert [answer.status for answer in answers[:3]] == [200, 200, 429]
    assert answers[2].headers["Retry-After"] == "1"
    assert narrow.storage(JOB, "launcher").now_ns() > 0
    assert narrow.storage("f" * 20, "trainer").now_ns() > 0
    began = time.monotonic()
    assert narrow.storage(JOB, "trainer").now_ns() > 0
    assert time.monotonic() - began < 10


def test_a_large_request_counts_as_many() -> None:
    clock = Clock()
    limiter = Limiter(Rate(10, 20), Rate(10, 200), clock)
    assert limiter.wait_s("a") == 0
    limiter.charge("a", 100 * limits.PART)
    assert [limiter.wait_s("a"), limiter.wait_s("b")] == [9, 0]
    clock.now += 8.2
    assert limiter.wait_s("a") == 0


def _request(*chunks: bytes, every_s: float = 0.0) -> Request:
    left = list(chunks)

    async def receive() -> dict[str, object]:
        await asyncio.sleep(every_s)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return Request({"type": "http", "method": "PUT", "headers": []}, receive)


def test_a_slow_body_is_not_waited_for() -> None:
    room = bodies.Room(within_s=0.3)

    async def read() -> None:
        async with room.body(_request(*[b"x"] * 8, every_s=0.1), 1000, "a"):
            pass

    with pytest.raises(HTTPException, match="not here within") as raised:
        asyncio.run(read())
    assert raised.value.status_code == 408
    assert room._held.total() == 0


def test_bodies_that_are_worked_on_have_room_and_no_more() -> None:
    """Of all bearers and of each; it is free again after them, also after one that failed."""
    room = bodies.Room(most=10, most_each=6)

    async def hold(bearer: str, *chunks: bytes, most: int = 100) -> int:
        try:
            async with room.body(_request(*chunks), most, bearer) as content:
                return len(content)
        except HTTPException as error:
            return -error.status_code

    async def all_of_it() -> None:
        assert await hold("a", b"1234", b"5678") == -503
        assert await hold("a", b"123456") == 6
        assert await hold("a", b"123", most=2) == -413
        async with room.body(_request(b"12345"), 100, "a"):
            assert await hold("a", b"12") == -503
            assert await hold("b", b"12345") == 5
            assert await hold("b", b"123456") == -503
        assert await hold("b", b"123456") == 6

    asyncio.run(all_of_it())
    assert room._held == {}


def test_who_hangs_up_in_a_body_leaves_nothing(database: str) -> None:
    with serving(database) as api:
        connection = http.client.HTTPConnection(urlsplit(api.base).netloc, timeout=20)
        connection.putrequest("PUT", f"{PREFIX}/logs/{JOB}/files/cursor")
        connection.putheader("Authorization", f"Bearer {api.token(JOB)()}")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"half")
        connection.close()
        place = api.storage(JOB)
        for _ in range(5):
            assert place.read("cursor") is None
