"""From a trainer's death to the next one on a real Slurm: our relaunch beside Slurm's own requeue.

The same trainer in all: it writes down each of its starts. Ours are watched in threads, as tasks
do that hold their workers, and have run quietly for half a minute, as trainings do. What Slurm
requeues is a batch script as one writes it by hand, whose last word is ``scontrol requeue``.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from restarts import LIGHT, home

from airflow_ett.events import Cause, JobKey
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.launch.watcher import Watcher
from airflow_ett.storage import FolderStorage

OURS = 6
REQUEUED = 2
POLL_S = 1.0
QUIET_S = 32.0
APART_S = 2.3
LIMIT_S = 240.0
ARGUMENTS = ("--steps=1000000", "--step-s=0.5")


class Relaunch(NamedTuple):
    """The parts of one standstill of ours in seconds; together they are the whole."""

    decided: float
    agent: float
    trainer: float

    @property
    def whole(self) -> float:
        return sum(self)


class Deaths(NamedTuple):
    """What was seen; ``requeued`` and ``hasty`` are whole standstills in seconds."""

    ours: list[Relaunch]
    requeued: list[float]
    hasty: list[float]


class Victim:
    """A training whose trainer is killed once."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.killed_ns = 0

    def starts(self) -> list[tuple[int, int]]:
        """Return pid, in the cluster's own namespace, and time of each start so far."""
        path = self.place / "starts"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), int(at)) for pid, at in map(str.split, lines)]

    def kill(self) -> None:
        """Kill the trainer that runs."""
        inside = self.starts()[-1][0]
        (pid,) = (
            int(path.name)
            for path in Path("/proc").glob("[0-9]*")
            if _number_inside(path) == inside and str(self.place) in _command(path)
        )
        self.killed_ns = time.time_ns()
        os.kill(pid, signal.SIGKILL)

    def again(self) -> bool:
        return len(self.starts()) > 1

    def standstill_s(self) -> float:
        return (self.starts()[1][1] - self.killed_ns) / 1e9


class Watched(Victim):
    """One that is submitted and watched as its task does."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(folder / f"ours-{number}")
        self._key = JobKey("bench", "dag", f"run-{number}", "train")
        root = Root(str(folder / "runs"))
        job = open_job(root, self._key, checkpoint_root="", try_number=1, max_tries=1)
        script = ("--script", str(LIGHT), "--cpu", "1", "--memMB", "200")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        arguments = [*script, "--", *ARGUMENTS, f"--place={self.place}"]
        request = Request("train", arguments, "slurm", env={"PATH": path})
        claim = job.log.claim(try_number=1, max_tries=1, mode="task")
        self._watcher = Watcher(job, claim, request, Gateway(), poll_interval_s=POLL_S)
        self._watcher.begin()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def relaunch(self) -> Relaunch:
        """Return where the time went, from the job's log."""
        log = StorageLog(FolderStorage(Path(self._watcher.places().run_dir)), self._key)
        (intended,) = (
            event.time_ns
            for event in log.launcher_events()
            if event.kind == "submit_intended" and event.data["submission"] == 2
        )
        (agent,) = (
            event.time_ns
            for event in log.submission_events(2)
            if event.kind == "process_started" and event.data["role"] == "agent"
        )
        moments = [self.killed_ns, intended, agent, self.starts()[1][1]]
        return Relaunch(*((b - a) / 1e9 for a, b in itertools.pairwise(moments)))

    def _watch(self) -> None:
        while not self.over.is_set():
            time.sleep(self._watcher.pause_s)
            self._watcher.poll()
            self._watcher.read_log()
        self._watcher.cancel(Cause.USER_CANCELLED)
        while self._watcher.poll() is None:
            time.sleep(0.2)


def requeued(cluster: Any, place: Path) -> Victim:
    """Submit a batch script that asks Slurm itself for another run when the trainer has failed."""
    place.mkdir()
    trainer = f"{sys.executable} {LIGHT} {' '.join(ARGUMENTS)} --place={place}"
    cluster.run(
        *("sbatch", "--requeue", "--mem=200", f"--output={place}/output", "--open-mode=append"),
        *("--wrap", f"srun {trainer} || scontrol requeue $SLURM_JOB_ID"),
    )
    return Victim(place)


def deaths(cluster: Any, hasty_cluster: Any) -> Deaths:
    """Kill trainers and wait for the next ones; ``SLURM_CONF`` says that ``cluster`` is ours."""
    with home() as folder:
        os.environ["AIRFLOW__ETT__SLURM_STATE_DIR"] = str(folder / "apps")
        by_hand = [requeued(cluster, folder / f"requeued-{n}") for n in range(REQUEUED)]
        hasty = [requeued(hasty_cluster, folder / f"hasty-{n}") for n in range(REQUEUED)]
        ours = [Watched(number, folder) for number in range(OURS)]
        try:
            _until_all(Victim.starts, [*by_hand, *hasty, *ours])
            quiet = time.monotonic() + QUIET_S
            for victim in (*by_hand, *hasty):
                victim.kill()
            time.sleep(max(0.0, quiet - time.monotonic()))
            for victim in ours:
                victim.kill()
                time.sleep(APART_S)
            _until_all(Victim.again, [*by_hand, *hasty, *ours])
            time.sleep(1)  # the last start is written down by its watcher, too
            return Deaths(
                [victim.relaunch() for victim in ours],
                [victim.standstill_s() for victim in by_hand],
                [victim.standstill_s() for victim in hasty],
            )
        finally:
            for victim in ours:
                victim.over.set()
            for victim in ours:
                victim.thread.join(LIMIT_S)


def _until_all(true: Callable[[Victim], object], victims: list[Victim]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not all(map(true, victims)):
        if time.monotonic() > limit:
            raise TimeoutError("a trainer did not come up")
        time.sleep(0.05)


def _number_inside(process: Path) -> int | None:
    """Return a process's pid in the innermost namespace that it is in."""
    try:
        status = (process / "status").read_text()
    except OSError:
        return None
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(numbers.split()[-1])


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
