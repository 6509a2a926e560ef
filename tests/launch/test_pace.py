"""When the scheduler is looked at: fast after a change, slow where the end shows by itself."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Cause
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.pace import interval_s


@pytest.mark.parametrize(
    ("base", "quiet", "rests", "expected"),
    [
        (1.0, 0, True, 0.25),
        (1.0, 29, False, 0.25),
        (0.5, 0, True, 0.2),
        (0.1, 0, True, 0.1),
        (40.0, 0, True, 10.0),
        (1.0, 30, True, 1.0),
        (1.0, 30, False, 1.0),
        (1.0, 120, True, 2.0),
        (1.0, 120, False, 1.0),
        (1.0, 300, True, 5.0),
        (1.0, 9e9, True, 5.0),
        (1.0, 9e9, False, 1.0),
    ],
)
def test_the_table(base: float, quiet: float, rests: bool, expected: float) -> None:
    assert interval_s(base, quiet_s=quiet, rests=rests) == expected


@pytest.fixture
def looks(bench: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bench at the real time, since heartbeats are files, and every look at its scheduler."""
    bench.now_ns = time.time_ns()
    seen: list[str] = []
    real = bench.gateway.status

    def status(handle: str) -> Any:
        seen.append(handle)
        return real(handle)

    monkeypatch.setattr(bench.gateway, "status", status)
    return seen


def beat(bench: Any) -> None:
    """Touch the heartbeat of the first attempt's agent."""
    path = bench.run_dir().heartbeat(AttemptId(1), 0)
    path.touch()
    os.utime(path, ns=(bench.now_ns, bench.now_ns))


def quietly(bench: Any, watcher: Any, seconds: int) -> None:
    """Let a training with an agent go on without news; poll each second."""
    for _ in range(seconds):
        bench.tick(1)
        beat(bench)
        assert watcher.poll() is None


def test_a_quiet_training_with_an_agent_is_looked_at_five_times_less_often(
    bench: Any, looks: list[str]
) -> None:
    watcher = bench.watch()
    assert watcher.pause_s == 0.25
    watcher.poll()
    quietly(bench, watcher, 310)
    assert watcher.pause_s == 1.0
    looks.clear()
    quietly(bench, watcher, 100)
    assert len(looks) == 20


def test_logs_are_read_when_the_scheduler_is_looked_at(bench: Any, looks: list[str]) -> None:
    watcher = bench.watch()
    watcher.poll()
    quietly(bench, watcher, 310)
    looks.clear()
    read = []
    for _ in range(5):
        quietly(bench, watcher, 1)
        read.append(watcher.read_log())
    assert len(looks) == 1
    assert [text for text in read if text] == ["step 1\nstep 2\n"]


def test_an_agents_reply_is_acted_on_at_once_and_fast(bench: Any, looks: list[str]) -> None:
    watcher = bench.watch()
    watcher.poll()
    quietly(bench, watcher, 311)
    looks.clear()
    bench.reply(AttemptId(1), signal=9)
    bench.tick(1)
    assert watcher.poll() is None
    assert len(looks) == 1
    assert watcher.pause_s == 0.25
    bench.ends("FAILED")
    bench.tick(0.25)
    watcher.poll()
    assert len(bench.gateway.submitted) == 2


@pytest.mark.parametrize("why", ["no agent", "agent silent", "cancelled", "unknown"])
def test_no_rest_where_the_end_would_not_show(bench: Any, looks: list[str], why: str) -> None:
    watcher = bench.watch()
    watcher.poll()
    if why != "no agent":
        beat(bench)
    if why == "cancelled":
        watcher.cancel(Cause.USER_CANCELLED)
    for _ in range(320):
        bench.tick(1)
        if why in ("cancelled", "unknown"):
            beat(bench)
        if why == "unknown":
            bench.ends(None)
        watcher.poll()
    looks.clear()
    for _ in range(10):
        bench.tick(1)
        if why in ("cancelled", "unknown"):
            beat(bench)
        watcher.poll()
    assert len(looks) == 10


def test_a_deadline_ends_the_rest(bench: Any, looks: list[str]) -> None:
    limits = Limits(bench.now_ns + 402 * 10**9)
    watcher = bench.watch(limits=limits)
    watcher.poll()
    quietly(bench, watcher, 401)
    assert bench.gateway.cancelled == []
    quietly(bench, watcher, 1)
    assert bench.gateway.cancelled == [bench.app()]


def test_a_watcher_that_rests_submits_and_cancels_nothing_when_it_is_superseded(
    bench: Any, looks: list[str]
) -> None:
    old = bench.watch()
    old.poll()
    quietly(bench, old, 311)
    bench.watch(try_number=2)
    bench.tick(1)
    old.poll()
    assert bench.gateway.cancelled == []
    assert len(bench.gateway.submitted) == 1
