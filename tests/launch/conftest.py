"""A scripted scheduler behind the gateway's interface, and a job to watch."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.errors import LaunchError
from airflow_ett.events import AttemptId, Event, JobContext, JobKey, JobState, RunDir
from airflow_ett.launch.opening import OpenJob, open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.watcher import Watcher
from airflow_ett.storage import Storage
from airflow_ett.store import upgrade
from tests.s3 import new_bucket

KEY = JobKey("default", "dag", "run", "train")


@dataclass
class FakePrepared:
    """What was asked for, and what the app's trainers are told."""

    env: dict[str, str]
    grace_s: float = 30.0
    grace_shortfall: str | None = None

    def tell(self, env: Mapping[str, str]) -> None:
        self.env.update(env)


@dataclass
class FakeGateway:
    """Apps by name; a test sets ``states[name]`` (or an exception) and reads what was asked."""

    states: dict[str, Any] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    contexts: list[JobContext] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)
    refuse: bool = False
    lose_answer: bool = False

    def prepare(self, **request: Any) -> FakePrepared:
        return FakePrepared(dict(request["env"]))

    def accelerators(self, prepared: FakePrepared) -> int:
        return 8

    def submit(self, prepared: FakePrepared, name: str) -> str:
        if self.refuse:
            raise LaunchError("the queue is closed")
        self.submitted.append(name)
        self.contexts.append(JobContext.decode(prepared.env[JOB_VARIABLE]))
        self.environments.append(prepared.env)
        self.states.setdefault(name, "RUNNING")
        if self.lose_answer:
            raise KeyboardInterrupt
        return f"fake://{name}"

    def app_id(self, prepared: FakePrepared, name: str) -> str | None:
        return None

    def find(self, name: str, scheduler: str, app_id: str | None = None) -> str | None:
        return f"fake://{name}" if name in self.states else None

    def status(self, handle: str) -> SchedulerStatus:
        state = self.states.get(handle.removeprefix("fake://"))
        if isinstance(state, Exception):
            raise state
        if isinstance(state, SchedulerStatus):
            return state
        return SchedulerStatus(state, raw=str(state))

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle.removeprefix("fake://"))

    def last_lines(self, handle: str, replica: int, count: int) -> list[str]:
        return ["step 1", "CUDA error: launch failure"]

    def log_location(self, handle: str, replica: int = 0) -> str | None:
        return f"/logs/{handle.removeprefix('fake://')}/trainer-{replica}"

    def read_log(self, handle: str, replica: int, offset: int) -> tuple[str, int]:
        text = "step 1\nstep 2\n"
        return text[offset:], len(text)


class TrainerLog:
    """The log of an attempt's rank 0."""

    def __init__(self, storage: Storage, job: str, attempt: AttemptId) -> None:
        self._storage, self._job, self._attempt = storage, job, attempt
        self._numbers = itertools.count()

    def append(self, kind: str, data: Mapping[str, Any], *, time_ns: int | None = None) -> None:
        writer, now_ns = f"t-{self._attempt}", time.time_ns() if time_ns is None else time_ns
        number = next(self._numbers)
        event = Event(self._job, writer, number, now_ns, kind, self._attempt, 0, data)
        self._storage.append(f"nodes/{writer}.jsonl", [event])


@dataclass
class Bench:
    """A root of places, a scheduler and a clock that outlive the watchers put on them."""

    root: Root
    checkpoints: str = ""
    token: Callable[[], str] | None = None
    gateway: FakeGateway = field(default_factory=FakeGateway)
    now_ns: int = 1_000_000_000_000
    request: Request = field(default_factory=lambda: Request("train", ["--m", "x"], "fake"))

    def open(self) -> OpenJob:
        """Open the job as it stands, for a try that was cleared if the job has ended."""
        return open_job(self.root, KEY, checkpoint_root=self.checkpoints, try_number=9, max_tries=9)

    def run_dir(self) -> RunDir:
        """Return the run directory of the newest generation."""
        return RunDir(Path(self.open().log.place))

    def watch(
        self, try_number: int = 1, max_tries: int = 2, mode: str = "task", **options: Any
    ) -> Watcher:
        job = self.open()
        claim = job.log.claim(try_number=try_number, max_tries=max_tries, mode=mode)
        job = replace(job, token=self.token)
        watcher = Watcher(
            job, claim, self.request, self.gateway, now_ns=lambda: self.now_ns, **options
        )
        watcher.begin()
        return watcher

    def tick(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def app(self, number: int = -1) -> str:
        return self.gateway.submitted[number]

    def ends(self, state: str, number: int = -1) -> None:
        self.gateway.states[self.app(number)] = state

    def reply(self, attempt: AttemptId, **rank: Any) -> None:
        """Write the agent's reply of an attempt's only rank."""
        fields = {"rank": 0, "exit_code": None, "signal": None, "end_ns": 1, "error": None, **rank}
        content = json.dumps({"node": 0, "host": "gpu-1", "ranks": [fields]}).encode()
        self.root.open(self.open().log.place).write(f"replies/{attempt}-n0.json", content)

    def trainer(self, attempt: AttemptId) -> TrainerLog:
        """Return the log of an attempt's rank 0."""
        log = self.open().log
        return TrainerLog(self.root.open(log.place), log.key.id, attempt)

    def events(self, kind: str, generation: int = 1) -> list[Event]:
        """Return the launcher events of a kind."""
        log = self.root.log(replace(KEY, generation=generation))
        return [event for event in log.launcher_events() if event.kind == kind]

    def job_state(self) -> JobState | None:
        ends = self.events("job_ended")
        return JobState(ends[-1].data["state"]) if ends else None


@pytest.fixture
def in_a_folder(tmp_path: Path) -> Root:
    """Run directories."""
    return Root(str(tmp_path / "runs"))


@pytest.fixture
def in_memory() -> Iterator[Root]:
    """fsspec's memory."""
    from fsspec.implementations.memory import MemoryFileSystem

    yield Root("memory://runs")
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def on_s3(monkeypatch: pytest.MonkeyPatch) -> Root:
    """A real S3 server on loopback."""
    return Root(f"{new_bucket(monkeypatch)}/runs")


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tables and nothing in them, to be copied."""
    path = tmp_path_factory.mktemp("store") / "ett.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def at_the_api(empty_store: Path, tmp_path: Path) -> Iterator[Root]:
    """The API on loopback, over a database of its own."""
    pytest.importorskip("fastapi")
    from tests.api.server import serving

    copied = shutil.copy(empty_store, tmp_path / "ett.db")
    with serving(f"sqlite:///{copied}") as server:
        yield Root(server.base, server.secret)


@pytest.fixture(params=["in_a_folder", "in_memory", "on_s3", "at_the_api"])
def root(request: pytest.FixtureRequest) -> Root:
    """An empty root of each kind."""
    found: Root = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench on a fresh run root."""
    return Bench(Root(str(tmp_path)))
