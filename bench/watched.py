"""Three hundred jobs of a real Slurm watched by one triggerer: what that costs the cluster.

The same triggers run all the time; in turn they ask as we do, one question for all, and one
``squeue`` for each job, as anybody would at first. Through ssh only as we do. In a process of its
own, as a triggerer is, which finds the cluster by ``SLURM_CONF`` or by Airflow's connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from airflow_ett.events import JobKey
from airflow_ett.hooks.job import JobHold
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.schedulers.slurm import Slurm
from airflow_ett.launch.schedulers.slurm.answers import Job, read_squeue, squeue_argv
from airflow_ett.launch.schedulers.slurm.asking import Asking
from airflow_ett.launch.schedulers.slurm.cluster import Cluster
from airflow_ett.launch.schedulers.slurm.ssh import Ssh
from airflow_ett.launch.schedulers.slurm.transport import Local, Result, Transport
from airflow_ett.store import upgrade

JOBS = 300
POLL_S = 1.0
QUIET_S = 32.0
"""The looks at a job are faster for half a minute after it has changed."""
SETTLE_S = 3.0
WINDOW_S = 9.0
TURNS = 2
TASK = ("--cpu", "4", "--memMB", "1000", "sleep", "100000")
"""One such job fills a node."""


@dataclass
class Seen:
    """What was seen while all asked in one way: counts and seconds, the latencies of the looks."""

    seconds: float = 0
    commands: Counter[str] = field(default_factory=Counter)
    in_commands: float = 0
    in_slurmctld: float = 0
    in_triggerer: float = 0
    looks: list[float] = field(default_factory=list)


class Counting:
    """Runs commands as another transport does, and counts them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self.commands: Counter[str] = Counter()

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        with self._lock:
            self.commands[argv[0]] += 1
        return self._transport.run(argv, input)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneEach(Asking):
    """Asks for every job by itself, whenever somebody wants to know."""

    def job(self, job_id: int) -> Job | None:
        result = self._transport.run([*squeue_argv(), f"--jobs={job_id}"])
        return next(iter(read_squeue(result.out)), None)


def hold_of(number: int, root: Path, conn_id: str) -> JobHold:
    """Submit a job as its task does, which then defers."""
    key = JobKey("bench", "dag", f"run-{number}", "train")
    job = open_job(Root(str(root)), key, checkpoint_root="", try_number=1, max_tries=1)
    cfg = {"ssh_conn_id": conn_id} if conn_id else {}
    request = Request("utils.sh", list(TASK), "slurm", cfg=cfg)
    hold = JobHold.of(job, request, try_number=1, max_tries=1, limits=Limits())
    hold.take("task", POLL_S).begin()
    return hold


async def watch(hold: JobHold, looks: list[float]) -> None:
    """Follow a trigger as the triggerer does, and note how long each look takes."""
    from airflow_ett.launch.aftermath import Outcome
    from airflow_ett.triggers.training import TrainingTrigger

    class Timed(TrainingTrigger):
        async def _looked(self) -> Outcome | None:
            began = time.monotonic()
            outcome = await super()._looked()
            looks.append(time.monotonic() - began)
            return outcome

    async for event in Timed(asdict(hold), POLL_S).run():
        raise AssertionError(f"a training ended: {event.payload}")


def processor_s(pid: int) -> float:
    """Return the seconds that a process has had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def used_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def observe(into: Seen, transport: Counting, looks: list[float], slurmctld: int) -> None:
    """Add what happens in a window."""
    looks.clear()
    commands = transport.commands.copy()
    moments = [time.monotonic(), used_s(resource.RUSAGE_CHILDREN), processor_s(slurmctld)]
    moments.append(used_s(resource.RUSAGE_SELF))
    await asyncio.sleep(WINDOW_S)
    into.seconds += time.monotonic() - moments[0]
    into.in_commands += used_s(resource.RUSAGE_CHILDREN) - moments[1]
    into.in_slurmctld += processor_s(slurmctld) - moments[2]
    into.in_triggerer += used_s(resource.RUSAGE_SELF) - moments[3]
    into.commands += transport.commands - commands
    into.looks += looks


async def scene(
    at: Cluster, transport: Counting, holds: list[JobHold], slurmctld: int, *, alone: bool
) -> dict[str, Seen]:
    ways = {"shared": at.asking}
    if alone:
        ways["one each"] = OneEach(transport)
    seen = {way: Seen() for way in ways}
    looks: list[float] = []
    tasks = [asyncio.create_task(watch(hold, looks)) for hold in holds]
    await asyncio.sleep(QUIET_S)
    for _ in range(TURNS):
        for way, asking in ways.items():
            at.asking = asking
            await asyncio.sleep(SETTLE_S)
            await observe(seen[way], transport, looks, slurmctld)
    for task in tasks:
        assert not task.done(), task.exception()
        task.cancel()
    await asyncio.wait(tasks)
    return seen


def watched(slurmctld: int, conn_id: str = "") -> dict[str, Any]:
    """Measure in a process of its own; ``slurmctld`` is that one's pid."""
    command = [sys.executable, __file__, str(slurmctld), conn_id]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Submit, defer, watch; the store is a real one."""
    slurmctld, conn_id = int(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        os.environ["AIRFLOW_HOME"] = folder
        database = f"sqlite:///{root}/ett.db"
        os.environ["AIRFLOW__ETT__SQL_ALCHEMY_CONN"] = database
        upgrade(database)
        transport = Counting(Ssh(conn_id) if conn_id else Local())
        at = Cluster(transport)
        factories = {"slurm": lambda session, **_: Slurm(session, root / "apps")}
        with (
            mock.patch("airflow_ett.launch.gateway.scheduler_factories", return_value=factories),
            mock.patch("airflow_ett.launch.schedulers.slurm.scheduler.cluster", return_value=at),
            mock.patch("airflow_ett.links.board.BaseXCom.set"),
            ThreadPoolExecutor(4) as tasks,
        ):
            began = time.monotonic()
            submit = partial(hold_of, root=root / "runs", conn_id=conn_id)
            holds = list(tasks.map(submit, range(JOBS)))
            submitting = {
                "seconds": time.monotonic() - began,
                "commands": transport.commands.copy(),
            }
            seen = asyncio.run(scene(at, transport, holds, slurmctld, alone=not conn_id))
    print(json.dumps({"submitting": submitting, **{way: vars(s) for way, s in seen.items()}}))


if __name__ == "__main__":
    main()
