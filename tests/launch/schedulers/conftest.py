"""A ``local_detached`` scheduler on a fresh state directory, and what tests do with its apps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from torchx.specs import AppDef, Role

from airflow_ett.launch.schedulers.appdir import AppDir, Replica, Request, Status
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.launch.schedulers.processes import Process, identify, is_alive, kill_all
from airflow_ett.launch.schedulers.starting import locked, start
from airflow_ett.launch.status import SchedulerStatus

_PRELUDE = """
import sys
from pathlib import Path
from torchx.specs import AppDef, Role
from airflow_ett.launch.schedulers.local_detached import LocalDetached
local = LocalDetached("other", Path(sys.argv[1]))
def submit(name, script):
    role = Role(name="r0", image="", entrypoint="/bin/sh", args=["-c", script])
    local.schedule(local.submit_dryrun(AppDef(name=name, roles=[role]), {}))
"""


@dataclass
class Local:
    """The scheduler under test."""

    state_dir: Path

    def __post_init__(self) -> None:
        self.scheduler = LocalDetached("test", self.state_dir)

    def submit(self, name: str, *scripts: str, grace_s: int = 5, **role: object) -> str:
        """Submit an app with one role ``r<i>`` per shell script; TorchX makes "$" of "$$"."""
        scripts = tuple(text.replace("$", "$$") for text in scripts)
        roles = [
            Role(name=f"r{i}", image="", entrypoint="/bin/sh", args=["-c", text], **role)
            for i, text in enumerate(scripts)
        ]
        app = AppDef(name=name, roles=roles)
        return self.scheduler.schedule(self.scheduler.submit_dryrun(app, {"grace_s": grace_s}))

    def start(self, app: AppDir, request: Request) -> None:
        """Start a request that no dry run has seen."""
        with locked(app, wait_s=5) as lock:
            assert lock is not None
            app.write_request(request)
            start(app, lock)

    def app(self, name: str) -> AppDir:
        return AppDir(self.state_dir / name)

    def detail(self, name: str) -> SchedulerStatus:
        found = self.scheduler.detail(name)
        assert found is not None
        return found

    def recorded(self, name: str) -> Status:
        """What is on disk, without anybody looking after the app."""
        status = self.app(name).read_status()
        assert status is not None
        return status

    def ended(self, name: str, timeout_s: float = 15) -> SchedulerStatus:
        self.until(lambda: self.detail(name).terminal, timeout_s)
        return self.detail(name)

    def output(self, name: str, replica: str = "r0-0") -> str:
        path = self.state_dir / name / "logs" / replica
        return path.read_text() if path.exists() else ""

    def said(self, name: str, text: str, replica: str = "r0-0") -> str:
        """Wait until a replica has printed ``text``; return all that it printed."""
        self.until(lambda: text in self.output(name, replica))
        return self.output(name, replica)

    def replica(self, name: str, index: int = 0) -> Replica:
        self.until(lambda: self.recorded(name).replicas[index].process is not None)
        return self.recorded(name).replicas[index]

    def other(self, code: str) -> subprocess.Popen[str]:
        """Run code in another process that has ``local`` and ``submit(name, script)``."""
        return subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + code, str(self.state_dir)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask_other(self, code: str) -> str:
        process = self.other(code)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return out.strip()

    def printed_process(self, name: str, word: str) -> Process:
        """The process whose pid a replica has printed as ``<word> <pid>``."""
        text = self.said(name, f"{word} ")
        pid = int(text.split(f"{word} ")[1].split()[0])
        found = identify(pid)
        assert found is not None
        return found

    def guard(self, name: str) -> int:
        """The pid of the supervisor's parent."""
        supervisor = self.recorded(name).supervisor
        assert supervisor is not None
        text = Path(f"/proc/{supervisor.pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[1])

    def kill_supervisor(self, name: str) -> None:
        supervisor = self.recorded(name).supervisor
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGKILL)

    @staticmethod
    def until(true: Callable[[], bool], timeout_s: float = 10) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    def gone(self, process: Process, timeout_s: float = 2) -> None:
        self.until(lambda: not is_alive(process), timeout_s)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A scheduler; whatever its apps left running is ended afterwards."""
    local = Local(tmp_path / "apps")
    yield local
    for folder in local.state_dir.glob("*"):
        local.scheduler.cancel(folder.name)
        kill_all(AppDir(folder).processes, timeout_s=5)
