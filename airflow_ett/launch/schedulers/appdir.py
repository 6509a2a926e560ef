"""The folder of one local app: what was asked, what became of it, and what its replicas said.

::

    <state_dir>/<app id>/
      lock             held from the start's begin until the supervisor has recorded itself
      request.json     the replicas to run
      status.json      written by the supervisor, replaced atomically
      cancel           exists once somebody asked for the app's end
      supervisor.log   the supervisor's own output
      logs/<role>-<k>  a replica's stdout and stderr, in the order in which they were written

Standard library only. Readers never raise on a file that is missing or half written.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from airflow_ett.launch.schedulers.processes import Place, Process, is_alive, kill_all, marked

MARK = "ETT_LOCAL_APP"
"""Variable in every replica's environment: the app's folder, by which its processes are found."""

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})

_BURY_S = 5.0


class ReplicaRequest(NamedTuple):
    """One process to run: its command, the variables it adds to the environment, its folder."""

    role: str
    id: int
    argv: list[str]
    env: dict[str, str]
    cwd: str


class Request(NamedTuple):
    """What a supervisor runs. ``grace_s`` lies between SIGTERM and SIGKILL, in seconds."""

    app: str
    grace_s: float
    replicas: tuple[ReplicaRequest, ...]


class Replica(NamedTuple):
    """What became of one replica; times are UTC nanoseconds, ``state`` is a TorchX state."""

    role: str
    id: int
    state: str
    process: Process | None = None
    begin_ns: int | None = None
    end_ns: int | None = None
    exit_code: int | None = None
    signal: int | None = None


class Status(NamedTuple):
    """What the supervisor recorded: a TorchX ``state``, its own word for it, and the times."""

    app: str
    place: Place
    supervisor: Process | None
    state: str
    raw: str
    message: str
    allocated_ns: int | None
    started_ns: int | None
    ended_ns: int | None
    replicas: tuple[Replica, ...]


class AppDir:
    """Access to one app's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.cancel = path / "cancel"
        self.supervisor_log = path / "supervisor.log"
        self._request = path / "request.json"
        self._status = path / "status.json"

    def log(self, role: str, replica: int) -> Path:
        """The file with one replica's output."""
        return self.path / "logs" / f"{role}-{replica}"

    def write_request(self, request: Request) -> None:
        """Store the request; only the owner may read it, since it holds environments."""
        fields = request._asdict() | {"replicas": [r._asdict() for r in request.replicas]}
        _replace(self._request, fields)

    def read_request(self) -> Request | None:
        """Return the request, or None where there is none to read."""
        try:
            fields = _read(self._request)
            replicas = tuple(ReplicaRequest(**replica) for replica in fields["replicas"])
            return Request(**{**fields, "replicas": replicas})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def started(self) -> bool:
        """Tell whether a supervisor has ever recorded itself, readably or not."""
        return self._status.exists()

    def write_status(self, status: Status) -> None:
        """Store the status. Raises ``OSError``."""
        fields = status._asdict() | {"replicas": [r._asdict() for r in status.replicas]}
        _replace(self._status, fields)

    def read_status(self) -> Status | None:
        """Return the last recorded status, or None where there is none to read."""
        try:
            fields = _read(self._status)
            return Status(
                **{
                    **fields,
                    "place": Place(*fields["place"]),
                    "supervisor": _process(fields["supervisor"]),
                    "replicas": tuple(_replica(replica) for replica in fields["replicas"]),
                }
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def processes(self) -> set[Process]:
        """Return the living processes that the app's replicas are made of, whoever owns them."""
        return marked(MARK, str(self.path))


def bury(app: AppDir, last: Status, also: Callable[[], set[Process]] = set) -> Status:
    """Kill what a lost supervisor left behind and record the loss.

    ``also`` finds processes beyond those that the app's mark and ``last`` tell. Whoever finds the
    loss may call this, even two at once. Raises ``OSError`` when the loss cannot be recorded.
    """
    recorded = {replica.process for replica in last.replicas if replica.process}
    left = kill_all(lambda: app.processes() | _living(recorded) | also(), _BURY_S)
    message = f"the supervisor of app {last.app} on {last.place.host} was lost"
    if left:
        message += f"; still alive: {sorted(process.pid for process in left)}"
    return record_loss(app, last, message)


def record_loss(app: AppDir, last: Status, message: str) -> Status:
    """Record that the app's supervisor is gone, unless it has recorded its own end meanwhile.

    Raises ``OSError`` when it cannot be recorded.
    """
    meanwhile = app.read_status()
    if meanwhile is not None and meanwhile.state in TERMINAL:
        return meanwhile
    now = time.time_ns()
    lost = last._replace(
        state="FAILED",
        raw="supervisor_lost",
        message=message,
        ended_ns=now,
        replicas=tuple(
            replica if replica.end_ns else replica._replace(state="FAILED", end_ns=now)
            for replica in last.replicas
        ),
    )
    app.write_status(lost)
    return lost


def _living(processes: Iterable[Process]) -> set[Process]:
    return {process for process in processes if is_alive(process)}


def _replica(fields: dict[str, Any]) -> Replica:
    return Replica(**{**fields, "process": _process(fields["process"])})


def _process(fields: list[int] | None) -> Process | None:
    return None if fields is None else Process(*fields)


def _read(path: Path) -> dict[str, Any]:
    fields = json.loads(path.read_bytes())
    if not isinstance(fields, dict):
        raise ValueError(f"{path} holds no object")
    return fields


def _replace(path: Path, fields: dict[str, Any]) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(fields, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
