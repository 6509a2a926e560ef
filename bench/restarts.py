"""From a trainer's death to the next one, and from submit to the first process, on this host."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from airflow_ett.events import AttemptId, Cause, Event, JobKey
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.launch.watcher import Watcher
from airflow_ett.storage import FolderStorage

ROOT = Path(__file__).resolve().parents[1]
LIGHT = ROOT / "tests" / "system" / "trainers" / "light.py"
JOBS = 8
QUIET_S = 32.0
APART_S = 1.7
ROUNDS = 7
POLL_S = 1.0
LIMIT_S = 60.0

FIRST = """
import time
began = time.time_ns()
import pathlib, sys
path = pathlib.Path(sys.argv[1])
path.with_suffix(".draft").write_text(str(began))
path.with_suffix(".draft").rename(path)
"""
BY_HAND = """
import sys, time
from torchx.runner import Runner
from torchx.schedulers.local_scheduler import create_scheduler
began = time.time_ns()
runner = Runner("bench", {"local_cwd": create_scheduler})
arguments = ["--script", sys.argv[2], "--", sys.argv[3]]
handle = runner.run_component(sys.argv[1], arguments, "local_cwd")
print(began, flush=True)
runner.wait(handle, 0.1)
"""
COLD = """
import sys
sys.path.insert(0, sys.argv[1])
import restarts
restarts.submit(int(sys.argv[4]), "--script", sys.argv[2], "--", sys.argv[3])
"""


class Restart(NamedTuple):
    """The parts of one standstill in seconds; together they are the whole."""

    noticed: float
    judged: float
    submitted: float
    supervised: float
    agent: float
    trainer: float

    @property
    def whole(self) -> float:
        return sum(self)


def submit(number: int, *arguments: str) -> Watcher:
    """Open, claim and submit a training as its task does."""
    root = Path(os.environ["AIRFLOW_HOME"]) / "runs"
    key = JobKey("bench", "dag", f"run-{number}", "train")
    job = open_job(Root(str(root)), key, checkpoint_root="", try_number=1, max_tries=1)
    request = Request("train", arguments, "local_detached")
    claim = job.log.claim(try_number=1, max_tries=1, mode="task")
    watcher = Watcher(job, claim, request, Gateway(), poll_interval_s=POLL_S)
    watcher.begin()
    return watcher


class Watched:
    """A training that is watched in a thread, as a task does that holds its worker."""

    def __init__(self, number: int, folder: Path) -> None:
        self.place = folder / f"place-{number}"
        arguments = ("--steps=1000000", "--step-s=0.5", f"--place={self.place}")
        self._watcher = submit(number, "--script", str(LIGHT), "--", *arguments)
        self.over = threading.Event()
        self.killed_ns = 0
        self._looked_ns = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def starts(self) -> list[int]:
        """Return the pids of its trainers so far."""
        path = self.place / "starts"
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(line.split()[0]) for line in lines]

    def kill(self) -> None:
        self.killed_ns = time.time_ns()
        os.kill(self.starts()[-1], signal.SIGKILL)

    def end(self) -> None:
        self.over.set()
        self._thread.join(LIMIT_S)

    def restart(self) -> Restart:
        """Return where the time went, from the job's log and its scheduler."""
        run_dir = Path(self._watcher.places().run_dir)
        log = StorageLog(FolderStorage(run_dir), JobKey("bench", "dag", "run", "train"))
        (ended,) = [e for e in log.launcher_events() if e.kind == "attempt_ended"][:1]
        (second,) = [e for e in log.launcher_events() if e.kind == "submitted"][1:2]
        supervised = Gateway().status(second.data["handle"]).allocated_ns or 0
        at = _starts(log.submission_events(2))
        moments = [self.killed_ns, self._looked_ns, ended.time_ns, second.time_ns, supervised]
        moments += [at["agent"], at["trainer"]]
        return Restart(*((b - a) / 1e9 for a, b in itertools.pairwise(moments)))

    def _watch(self) -> None:
        watcher = self._watcher
        first = watcher.handle
        while not self.over.is_set():
            time.sleep(watcher.pause_s)
            looked_ns = time.time_ns()
            watcher.poll()
            watcher.read_log()
            if watcher.handle != first and not self._looked_ns:
                self._looked_ns = looked_ns
        watcher.cancel(Cause.USER_CANCELLED)
        while watcher.poll() is None:
            time.sleep(0.2)


def _starts(events: list[Event]) -> dict[str, int]:
    starts = [e for e in events if e.kind == "process_started" and e.attempt == AttemptId(2)]
    return {str(e.data["role"]): e.time_ns for e in starts}


class FirstProcess:
    """Ways to launch the same script; each returns the seconds until its first line ran."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script = folder / "first.py"
        self._script.write_text(FIRST)
        self._number = 1000

    def ours(self) -> float:
        began, out = time.time_ns(), self._next()
        submit(self._number, "--script", str(self._script), "--", str(out))
        return self._until(out, began)

    def ours_as_a_command(self) -> float:
        began, out = time.time_ns(), self._next()
        arguments = (str(Path(__file__).parent), str(self._script), str(out), str(self._number))
        self._run(COLD, *arguments)
        return self._until(out, began)

    def torchx_run(self) -> float:
        began, out = time.time_ns(), self._next()
        command = [str(Path(sys.executable).parent / "torchx"), "run", "-s", "local_cwd"]
        self._call([*command, _component(), "--script", str(self._script), "--", str(out)])
        return self._until(out, began)

    def torchx_in_process(self) -> float:
        out = self._next()
        told = self._run(BY_HAND, _component(), str(self._script), str(out))
        return self._until(out, int(told))

    def _next(self) -> Path:
        self._number += 1
        return self._folder / f"first-{self._number}"

    def _run(self, code: str, *arguments: str) -> str:
        return self._call([sys.executable, "-c", code, *arguments])

    def _call(self, command: list[str]) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command, check=True, timeout=LIMIT_S, text=True, cwd=self._folder,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PATH": path},
        )  # fmt: skip
        return done.stdout

    def _until(self, out: Path, began_ns: int) -> float:
        until(out.exists)
        return (int(out.read_text()) - began_ns) / 1e9


def _component() -> str:
    return f"{ROOT / 'airflow_ett' / 'launch' / 'components.py'}:train"


def until(true: Callable[[], object]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > limit:
            raise TimeoutError("a benchmark's process did not come up")
        time.sleep(0.01)


@contextmanager
def home() -> Iterator[Path]:
    """A fresh AIRFLOW_HOME."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["AIRFLOW_HOME"] = folder
        yield Path(folder)


def restarts_and_first_processes() -> tuple[list[Restart], Mapping[str, float]]:
    """Kill trainers that have run quietly; while they grow quiet, launch first processes."""
    with home() as folder:
        watched = [Watched(number, folder) for number in range(JOBS)]
        try:
            for job in watched:
                until(job.starts)
            quiet = time.monotonic() + QUIET_S
            first = FirstProcess(folder)
            ways = {
                "ours, in a process that runs": first.ours,
                "ours, as a command": first.ours_as_a_command,
                "torchx in a process that runs": first.torchx_in_process,
                "torchx run, as a command": first.torchx_run,
            }
            rounds = [{name: way() for name, way in ways.items()} for _ in range(ROUNDS)]
            time.sleep(max(0.0, quiet - time.monotonic()))
            for job in watched:
                job.kill()
                time.sleep(APART_S)
            until(lambda: all(len(job.starts()) > 1 for job in watched))
            time.sleep(1)
            restarts = [job.restart() for job in watched]
        finally:
            for job in watched:
                job.over.set()
            for job in watched:
                job.end()
        return restarts, {name: median(row[name] for row in rounds) for name in ways}
