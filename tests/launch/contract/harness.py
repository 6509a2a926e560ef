"""What the gateway's contract needs of a scheduler: a way to bring about each situation.

A scheduler takes part in the contract by a class derived from :class:`Harness`, in this module or
in one of those that ``conftest.py`` names, and by nothing else: that finds the classes and gives
every test of ``test_contract.py`` each of them. The tests use the gateway alone; faults (a lost
answer, a scheduler that is away or slow) they bring about by themselves, at
:attr:`Harness.backend`. A scheduler that is not there on this machine skips in ``__init__``.
"""

from __future__ import annotations

import abc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from torchx.schedulers.api import Scheduler
from torchx.specs import AppState

from airflow_ett.launch.gateway import Gateway, Prepared
from airflow_ett.launch.schedulers.appdir import AppDir
from airflow_ett.launch.schedulers.kubernetes import create_scheduler as create_kubernetes
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.launch.schedulers.processes import kill_all
from airflow_ett.launch.schedulers.slurm import Slurm
from airflow_ett.launch.schedulers.slurm.transport import Local
from airflow_ett.launch.status import ReplicaStatus, SchedulerStatus
from tests.launch.contract.scripted import ROLE, DetailedScripted, Scripted
from tests.launch.schedulers.kubernetes import pods
from tests.launch.schedulers.kubernetes.server import serving

WAIT_S = 20.0


def until(true: Callable[[], Any]) -> None:
    """Wait until something holds; at most :data:`WAIT_S`."""
    limit = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < limit, f"it did not happen within {WAIT_S} s"
        time.sleep(0.02)


class Harness(abc.ABC):
    """One scheduler under test, on a fresh ``folder``.

    ``scheduler`` is its name; ``ids_are_names``: a name submitted twice is one app;
    ``tells_exit_codes``: it is ``Detailed`` and knows how replicas ended; ``ASK`` are the methods
    by which the gateway asks the backend about an app, ``needs`` the fixtures of servers
    that it runs on, ``marks`` what they are marked by.
    """

    scheduler: ClassVar[str]
    ids_are_names: ClassVar[bool] = True
    tells_exit_codes: ClassVar[bool] = True
    ASK: ClassVar[tuple[str, ...]] = ("detail", "list")
    needs: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = self.connect(folder)
        self.gateway = Gateway({self.scheduler: lambda session, **_: self.backend})

    @staticmethod
    @abc.abstractmethod
    def connect(folder: Path) -> Scheduler:
        """Return a scheduler on this folder; another process does the same."""

    @abc.abstractmethod
    def prepared(self) -> Prepared:
        """Return an app of one replica that runs until it is told how to end."""

    @abc.abstractmethod
    def queued(self, name: str) -> str:
        """Submit such an app that will not start for now; return its handle."""

    @abc.abstractmethod
    def succeed(self, handle: str) -> None:
        """Have the app end well."""

    @abc.abstractmethod
    def fail(self, handle: str, code: int) -> None:
        """Have the app's replica end with this exit code."""

    @abc.abstractmethod
    def say(self, handle: str, text: str) -> None:
        """Have the replica write ``text`` as it is, and return once it has."""

    def close(self) -> None:  # noqa: B027  nothing is left where nothing is real
        """End what the tests have left."""

    def running(self, name: str) -> str:
        """Submit an app and return its handle once it runs."""
        handle = self.gateway.submit(self.prepared(), name)
        until(lambda: self.gateway.status(handle).state == "RUNNING")
        return handle

    def ended(self, handle: str) -> SchedulerStatus:
        """Wait until the app is over; return its status."""
        until(lambda: self.gateway.status(handle).terminal)
        return self.gateway.status(handle)

    def find(self, name: str) -> str | None:
        """Return the handle of the app of this name."""
        return self.gateway.find(name, self.scheduler, self.gateway.app_id(self.prepared(), name))

    def apps(self) -> int:
        """Return how many apps the scheduler lists."""
        return len(self.backend.list())

    @staticmethod
    def app_id(handle: str) -> str:
        return handle.rpartition("/")[2]

    @classmethod
    def name(cls, handle: str) -> str:
        """Return the name that the app was submitted under, where ids are made of names."""
        return cls.app_id(handle).rpartition(":")[2]


class OnLocalDetached(Harness):
    """Real processes: a shell that does what it reads from a pipe."""

    scheduler = "local_detached"
    _NAME = "$$(basename $$ETT_LOCAL_APP)"
    _COMPONENT = """
from torchx.specs import AppDef, Role

def obey() -> AppDef:
    script = "exec 3<>{folder}/{name}.pipe; "
    script += "while read -r line <&3; do eval $$line; done"
    role = Role(name="r", image="", entrypoint="/bin/sh", args=["-c", script])
    return AppDef(name="x", roles=[role])
"""

    @staticmethod
    def connect(folder: Path) -> LocalDetached:
        return LocalDetached("test", folder / "apps")

    def prepared(self) -> Prepared:
        component = self.folder / "obedient.py"
        text = self._COMPONENT.replace("{folder}", str(self.folder)).replace("{name}", self._NAME)
        component.write_text(text)
        return self.gateway.prepare(f"{component}:obey", [], self.scheduler, self.options())

    def options(self) -> dict[str, Any]:
        """Return the run options of such an app."""
        return {"grace_s": 5}

    def running(self, name: str) -> str:
        os.mkfifo(self.folder / f"{name}.pipe")
        return super().running(name)

    def queued(self, name: str) -> str:
        """Leave what a submitter leaves that dies before the supervisor runs."""
        (self.folder / "apps" / name).mkdir(parents=True)
        return f"{self.scheduler}://ett/{name}"

    def succeed(self, handle: str) -> None:
        self._tell(handle, "exit 0")

    def fail(self, handle: str, code: int) -> None:
        self._tell(handle, f"exit {code}")

    def say(self, handle: str, text: str) -> None:
        log = self.folder / "apps" / self.name(handle) / "logs" / "r-0"
        before = log.read_text() if log.exists() else ""
        escaped = text.replace("\n", r"\n")
        self._tell(handle, f"printf '{escaped}'")
        until(lambda: log.exists() and log.read_text() == before + text)

    def close(self) -> None:
        for app in self.backend.list():
            self.backend.cancel(app.app_id)
            kill_all(AppDir(self.folder / "apps" / app.app_id).processes, timeout_s=5)

    def _tell(self, handle: str, line: str) -> None:
        with (self.folder / f"{self.name(handle)}.pipe").open("w") as pipe:
            pipe.write(f"{line}\n")


class OnSlurm(OnLocalDetached):
    """Real jobs on a real Slurm."""

    scheduler = "slurm"
    needs = ("slurm",)
    marks = ("slurm",)
    _NAME = "$$SLURM_JOB_NAME"

    @staticmethod
    def connect(folder: Path) -> Scheduler:
        return Slurm("test", folder / "apps", Local())

    def options(self) -> dict[str, Any]:
        return {"partition": self.partition}

    partition = "train"

    def queued(self, name: str) -> str:
        self.partition = "closed"
        return self.gateway.submit(self.prepared(), name)

    def close(self) -> None:
        """The fixture ends the jobs."""


class OnSlurmBySsh(OnSlurm):
    """The same, from a machine that reaches it by an SSH connection of Airflow's alone."""

    needs = ("slurm_by_ssh",)
    ASK = ("detail",)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "ssh_conn_id": "cluster"}

    def apps(self) -> int:
        return len(self.backend.list(self.options()))


class OnKubernetes(Harness):
    """Volcano jobs on an API server in this process, over a cluster in memory."""

    scheduler = "kubernetes"

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("kubernetes")
        self._serving = serving(folder)
        self._cluster = self._serving.__enter__().cluster
        super().__init__(folder)

    @staticmethod
    def connect(folder: Path) -> Scheduler:
        return create_kubernetes("test", kubeconfig=str(folder / "kubeconfig"))

    def prepared(self) -> Prepared:
        args = ["--image", "trainer:1", "--msg", "hello"]
        return self.gateway.prepare("utils.echo", args, self.scheduler, {"queue": "q"})

    def queued(self, name: str) -> str:
        self._cluster.full = True
        return self.gateway.submit(self.prepared(), name)

    def succeed(self, handle: str) -> None:
        self._cluster.end("default", self.name(handle), lambda pod: pods.end(pod, 0))

    def fail(self, handle: str, code: int) -> None:
        self._cluster.end("default", self.name(handle), lambda pod: pods.end(pod, code))

    def say(self, handle: str, text: str) -> None:
        self._cluster.say("default", f"{self.name(handle)}-echo-0-0", text)

    def close(self) -> None:
        self._serving.__exit__(None, None, None)


class OnScripted(Harness):
    """A scheduler that TorchX alone speaks for; its ids are names."""

    scheduler = "scripted"
    tells_exit_codes = False
    ASK = ("describe", "list")
    backend: Scripted

    @staticmethod
    def connect(folder: Path) -> Scripted:
        return Scripted(folder / "scripted")

    def prepared(self) -> Prepared:
        return self.gateway.prepare("utils.echo", [], self.scheduler, {"queue": "q"})

    def queued(self, name: str) -> str:
        self.backend.lives = [[AppState.PENDING]]
        return self.gateway.submit(self.prepared(), name)

    def succeed(self, handle: str) -> None:
        self.backend.live_on(self.app_id(handle), AppState.SUCCEEDED)

    def fail(self, handle: str, code: int) -> None:
        self.backend.live_on(self.app_id(handle), AppState.FAILED)

    def say(self, handle: str, text: str) -> None:
        with self.backend.log_path(self.app_id(handle), ROLE, 0).open("a") as log:
            log.write(text)


class OnSuffixed(OnScripted):
    """One that makes ids of names by a suffix, as TorchX does on Kubernetes."""

    ids_are_names = False

    @staticmethod
    def connect(folder: Path) -> Scripted:
        return Scripted(folder / "scripted", suffix="-x7k2")


class OnDetailed(OnScripted):
    """One that tells more than TorchX asks for."""

    tells_exit_codes = True
    ASK = ("detail", "list")

    @staticmethod
    def connect(folder: Path) -> Scripted:
        return DetailedScripted(folder / "scripted")

    def fail(self, handle: str, code: int) -> None:
        replica = ReplicaStatus(ROLE, 0, "FAILED", exit_code=code)
        status = SchedulerStatus("FAILED", raw="FAILED", replicas=(replica,))
        self.backend.live_on(self.app_id(handle), status)
