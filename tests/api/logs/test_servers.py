"""Several API servers on one database, and one that is killed: nothing lost, nothing double."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict

import pytest
from sqlalchemy import func, select

from airflow_ett.events import AttemptId, Event, JobKey
from airflow_ett.store import queries, tables
from airflow_ett.store.append import Appender
from tests.api.logs.conftest import JOB
from tests.api.server import Api, server_process, serving

S = 10**9
KEY = JobKey("default", "ranker", "run-1", "train")


@pytest.fixture
def two(url: str) -> Iterator[list[Api]]:
    """Two servers on one database."""
    with ExitStack() as stack:
        yield [stack.enter_context(serving(url)) for _ in range(2)]


def _together(work: list[Callable[[], None]]) -> None:
    problems: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    assert not any(thread.is_alive() for thread in threads)


def test_a_claim_is_one_of_eights_across_two_servers(two: list[Api]) -> None:
    places = [two[n % 2].storage(JOB) for n in range(8)]
    for round_ in range(5):
        name = f"launcher/claims/{round_:08d}.json"
        barrier, won = threading.Barrier(8), []

        def claim(mine: int, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait(30)
            if places[mine].create(name, b"%d" % mine):  # noqa: B023
                won.append(mine)

        _together([lambda mine=mine: claim(mine) for mine in range(8)])
        assert len(won) == 1
        assert {place.read(name) for place in places} == {b"%d" % won[0]}


def _opening() -> list[Event]:
    opened = {"key": asdict(KEY), "scheduler": "slurm", "accelerators": 2}
    submitted = {"submission": 1, "layer": "first", "app": "a", "handle": "h"}
    return [
        Event(KEY.id, "launcher-1", 0, 10**18, "job_opened", data=opened),
        Event(KEY.id, "launcher-1", 1, 10**18, "submitted", AttemptId(1), data=submitted),
    ]


def _step(seq: int) -> Event:
    begin = 10**18 + seq * S
    data = {"from": begin, "to": begin + S, "cursor_from": seq, "cursor_to": seq + 1}
    data |= {"steps": 1, "step_ns": S, "wait_ns": 0, "other_ns": 0}
    writer = "trainer-1.0.0-r0-p7"
    return Event(KEY.id, writer, seq, begin + S, "interval", AttemptId(1), 0, data)


def test_a_job_is_measured_alike_whichever_server_takes_its_events(two: list[Api]) -> None:
    """In turn, both at once, again, and out of turn: each catches up with the other."""
    first, second = (api.storage(KEY.id) for api in two)
    log = "nodes/t.jsonl"
    first.append("launcher/e00000001.jsonl", _opening())

    def effective_s() -> float:
        (job,) = queries.jobs(two[0].store)
        return job.effective_ns / S

    for seq in range(6):
        (first, second)[seq % 2].append(log, [_step(seq)])
        assert effective_s() == seq + 1
    first.append(log, [_step(8)])
    second.append(log, [_step(7), _step(6)])
    first.append(log, [_step(8)])
    assert effective_s() == 9
    steps = [_step(seq) for seq in range(9, 109)]
    _together(
        [
            lambda place=place, mine=mine: [place.append(log, [s]) for s in mine]  # type: ignore[misc]
            for place, mine in ((first, steps[::2]), (second, steps[1::2]))
        ]
    )
    assert effective_s() == 109
    (row,) = queries.jobs(two[0].store)
    assert Appender(two[0].store).measure(KEY.id) is None
    assert queries.jobs(two[0].store)[0].result == row.result


def test_a_server_that_is_killed_and_started_again_loses_nothing(url: str) -> None:
    threads, appends, each = 4, 30, 5
    stored_at_a_kill: list[int] = []
    with server_process(url) as (process, api):
        api.storage(KEY.id).append("launcher/e00000001.jsonl", _opening())

        def append(number: int) -> None:
            place = api.storage(KEY.id, "trainer", patience_s=60)
            for first in range(0, appends * each, each):
                writer = f"w{number}"
                events = [Event(KEY.id, writer, first + n, 10**18, "note") for n in range(each)]
                place.append(f"nodes/{writer}.jsonl", events)

        def kill() -> None:
            for _ in range(2):
                time.sleep(0.3)
                process.kill()
                with api.store.read() as connection:
                    count = select(func.count()).select_from(tables.event)
                    stored_at_a_kill.append(connection.scalar(count) or 0)
                process.start()

        _together([kill, *(lambda n=n: append(n) for n in range(threads))])
        column = tables.event.c
        query = select(column.writer, func.count().label("events")).group_by(column.writer)
        with api.store.read() as connection:
            found = {row.writer: row.events for row in connection.execute(query)}
        assert stored_at_a_kill[0] < threads * appends * each
        assert found == {"launcher-1": 2, **{f"w{n}": appends * each for n in range(threads)}}
        events = list(api.storage(KEY.id).events("nodes"))
        assert [e.seq for e in events] == [*range(appends * each)] * threads
        assert [job.job for job in queries.jobs(api.store)] == [KEY.id]
