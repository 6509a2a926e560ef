"""Two hundred deferred trainings on one event loop, at a scheduler that takes 5 s to answer.

In a process of its own, as a triggerer is: the garbage collector's pauses grow with all that a
process holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from torchx.specs import AppState

from airflow_ett.events import JobKey
from airflow_ett.hooks.job import JobHold
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.store import upgrade

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.launch.contract.scripted import DetailedScripted, Slow

TRAININGS = 200
ANSWER_S = 5.0
WARM_S = 40.0
ENDED = 50
KILLED = 20
SAMPLE_S = 0.02


class Crowd(NamedTuple):
    """What was seen, in seconds; a latency is from the change to the trigger's own act.

    ``idle_lag_max`` is the lag of a loop that has nothing to do, in a process of its own meanwhile.
    """

    lag_p99: float
    lag_max: float
    idle_lag_max: float
    noticed_median: float
    noticed_max: float
    told_median: float
    told_max: float


class Told(DetailedScripted):
    """The scheduler; notes when an app was told to end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.told: dict[str, float] = {}

    def _cancel_existing(self, app_id: str) -> None:
        self.told[app_id] = time.monotonic()
        super()._cancel_existing(app_id)


def hold_of(number: int, root: Path) -> JobHold:
    """Submit a training as its task does, which then defers."""
    job = open_job(
        Root(str(root)), JobKey("bench", "dag", f"run-{number}", "train"), checkpoint_root="",
        try_number=1, max_tries=1,
    )  # fmt: skip
    request = Request("utils.echo", [], "scripted", cfg={"queue": "q"})
    hold = JobHold.of(job, request, try_number=1, max_tries=1, limits=Limits())
    hold.take("task", 1.0).begin()
    return hold


async def watch(trigger: Any) -> float:
    """Follow a trigger as the triggerer does; return when it fired."""
    async for _ in trigger.run():
        return time.monotonic()
    raise AssertionError("a trigger ended without an event")


async def lags(into: list[float]) -> None:
    """Note by how much the loop is late, again and again."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(SAMPLE_S)
        into.append(loop.time() - before - SAMPLE_S)


IDLE = """
import asyncio, sys
async def watch():
    loop, worst, s = asyncio.get_running_loop(), 0.0, float(sys.argv[1])
    print("begun", flush=True)
    reader = loop.run_in_executor(None, sys.stdin.read)
    while not reader.done():
        before = loop.time()
        await asyncio.sleep(s)
        worst = max(worst, loop.time() - before - s)
    print(worst)
asyncio.run(watch())
"""


async def kill(trigger: Any, task: asyncio.Task[Any]) -> None:
    """Do as the triggerer does when a user marks a deferred task."""
    task.cancel()
    await asyncio.wait([task])
    await asyncio.wait_for(trigger.on_kill(), 30)


async def scene(scheduler: Told, holds: list[JobHold]) -> Crowd:
    from airflow_ett.triggers.training import trigger_for

    triggers = [trigger_for(hold, 1.0) for hold in holds]
    apps = list(scheduler.submitted)
    for app in apps:
        scheduler.live_on(app, Slow(ANSWER_S, AppState.RUNNING))
    lag: list[float] = []
    idle = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IDLE, str(SAMPLE_S), stdin=PIPE, stdout=PIPE
    )
    sampling = asyncio.create_task(lags(lag))
    tasks = [asyncio.create_task(watch(trigger)) for trigger in triggers]
    await asyncio.sleep(WARM_S)
    for app in apps[:ENDED]:
        scheduler.live_on(app, Slow(ANSWER_S, AppState.SUCCEEDED))
    ended = time.monotonic()
    chosen = range(ENDED, ENDED + KILLED)
    kills: list[Awaitable[None]] = [kill(triggers[n], tasks[n]) for n in chosen]
    await asyncio.gather(*kills)
    noticed = [at - ended for at in await asyncio.gather(*tasks[:ENDED])]
    told = [scheduler.told[apps[n]] - ended for n in chosen]
    sampling.cancel()
    told_idle, _ = await idle.communicate(b"")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return Crowd(
        lag_p99=statistics.quantiles(lag, n=100)[-1],
        lag_max=max(lag),
        idle_lag_max=float(told_idle.split()[-1]),
        noticed_median=statistics.median(noticed),
        noticed_max=max(noticed),
        told_median=statistics.median(told),
        told_max=max(told),
    )


def crowd() -> Crowd:
    """Measure in a process of its own."""
    done = subprocess.run([sys.executable, __file__], check=True, stdout=subprocess.PIPE)
    return Crowd(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Submit, defer, watch, end some and kill some; the store is a real one."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        os.environ["AIRFLOW_HOME"] = folder
        database = f"sqlite:///{root}/ett.db"
        os.environ["AIRFLOW__ETT__SQL_ALCHEMY_CONN"] = database
        upgrade(database)
        scheduler = Told(root / "scheduler")
        factories = {"scripted": lambda session, **_: scheduler}
        with (
            mock.patch("airflow_ett.launch.gateway.scheduler_factories", return_value=factories),
            mock.patch("airflow_ett.triggers.training.airflow_state", return_value="failed"),
            mock.patch("airflow_ett.links.board.BaseXCom.set"),
        ):
            holds = [hold_of(number, root / "runs") for number in range(TRAININGS)]
            seen = asyncio.run(scene(scheduler, holds))
    print(json.dumps(seen._asdict()))


if __name__ == "__main__":
    main()
