"""``local_detached``: a durable TorchX scheduler for one machine.

An app outlives the process that submitted it, and any process of the host can ask for its status,
read its logs, cancel or list it: all of it lies in the app's folder (see ``appdir``), and a
detached supervisor (see ``supervisor``) runs the replicas. An app's id is its name, so submitting
a name twice gives one app. From another host, or another container, an app that has not ended is
UNKNOWN. A restart of the host ends its apps.

Replicas run in the environment of the submitting process, without Airflow's own settings, which may
hold secrets; its Python comes first on their PATH. A role whose image is a folder runs there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    StructuredOpts,
)
from torchx.specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    InvalidRunConfigException,
    Role,
    macros,
    runopts,
)

from airflow_ett import config
from airflow_ett.errors import LaunchError
from airflow_ett.launch import status as shared
from airflow_ett.launch.schedulers.appdir import (
    TERMINAL,
    AppDir,
    ReplicaRequest,
    Request,
    Status,
    bury,
    record_loss,
)
from airflow_ett.launch.schedulers.describing import described
from airflow_ett.launch.schedulers.logs import Output, OutputFile
from airflow_ett.launch.schedulers.outputs import Outputs
from airflow_ett.launch.schedulers.processes import here, is_alive
from airflow_ett.launch.schedulers.starting import START_S, locked, start

NAME = "local_detached"
GRACE_KEY = f"{NAME}/grace_s"
"""Role metadata: seconds that this role needs between SIGTERM and SIGKILL."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RANK0_VARIABLE = "TORCHX_RANK0_HOST"
_CANCEL_S = 1.0


@dataclass
class Opts(StructuredOpts):  # type: ignore[misc]
    """Run options of ``local_detached``."""

    cwd: str | None = None
    """Folder in which replicas run; default: the role's image if that is one, else the current."""

    grace_s: int = 30
    """Seconds between SIGTERM and SIGKILL when an app is cancelled or one of its replicas fails."""


RUN_OPTIONS: runopts = Opts.as_runopts()
"""Made once: TorchX reads them from the source, which is slow and not safe in threads."""


class LocalDetached(Outputs, Scheduler[Opts]):  # type: ignore[misc]
    """The scheduler; apps live below ``state_dir`` and belong to its owner."""

    def __init__(self, session_name: str, state_dir: Path) -> None:
        super().__init__(NAME, session_name)
        self._state_dir = state_dir

    def _run_opts(self) -> runopts:
        return RUN_OPTIONS

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> None:
        """Refuse what could not run here. Resources need not be given."""
        cwd = cfg.get("cwd")
        if cwd is not None and not Path(str(cwd)).is_dir():
            raise InvalidRunConfigException(f"cwd: there is no folder {cwd!r}", "cwd", cfg)
        for role in app.roles:
            if not _SAFE_NAME.fullmatch(role.name):
                raise ValueError(f"role name {role.name!r} is not made of letters, digits, . _ -")

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[Request, Opts]:
        needs = [float(role.metadata.get(GRACE_KEY, 0)) for role in app.roles]
        request = Request(
            app=app.name,
            grace_s=max(float(cfg.grace_s), *needs),
            replicas=tuple(
                _replica(app.name, role, number, cfg.cwd)
                for role in app.roles
                for number in range(role.num_replicas)
            ),
        )
        return AppDryRunInfo(request, lambda shown: json.dumps(shown, indent=2))

    def schedule(self, dryrun_info: AppDryRunInfo[Request, Opts]) -> str:
        """Start the app and return its id, which is its name.

        Finishes the start of an app whose submitter died before its supervisor ran. Raises
        :class:`LaunchError` when the app exists already or cannot be started.
        """
        request: Request = dryrun_info.request
        app = self._app(request.app)
        try:
            app.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(app, wait_s=START_S) as lock:
                if lock is None or app.started():
                    raise LaunchError(f"app {request.app} exists already in {app.path}")
                app.write_request(request)
                start(app, lock)
        except (OSError, subprocess.SubprocessError) as error:
            raise LaunchError(f"app {request.app} could not be started: {error}") from error
        return request.app

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the app as TorchX shows it, or None when there is none of that id."""
        detail = self.detail(app_id)
        if detail is None:
            return None
        return described(app_id, detail, (self._app(app_id).path / "logs").as_uri())

    def detail(self, app_id: str) -> shared.SchedulerStatus | None:
        """Return all that is known of the app, or None when there is none of that id.

        Whoever finds the supervisor dead ends what it left behind and records ``supervisor_lost``.
        """
        if not _SAFE_NAME.fullmatch(app_id) or not self._app(app_id).path.is_dir():
            return None
        app = self._app(app_id)
        status = app.read_status()
        if status is None:
            return _without_status(app)
        if status.state in TERMINAL:
            return _shared(status)
        if status.place != here():
            return _from_elsewhere(app, status)
        if status.supervisor is not None and is_alive(status.supervisor):
            return _shared(status)
        # It may have ended in good order between the two looks.
        status = app.read_status() or status
        if status.state in TERMINAL:
            return _shared(status)
        return _lost(status, lambda: bury(app, status))

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """Return every app of the state directory."""
        names = (path.name for path in sorted(self._state_dir.glob("*")) if path.is_dir())
        return [
            ListAppResponse(app_id=name, state=AppState[detail.state or "UNKNOWN"], name=name)
            for name in names
            if (detail := self.detail(name))
        ]

    def _cancel_existing(self, app_id: str) -> None:
        """Ask for the app's end; one whose start was never finished will not start any more."""
        app = self._app(app_id)
        app.cancel.touch(mode=0o600)
        with locked(app, wait_s=_CANCEL_S) as lock:
            if lock is not None and not app.started():
                app.write_status(_never_started(app_id))

    def app_id(self, name: str, cfg: Mapping[str, Any]) -> str:
        """Return the id of an app of this name, which is the name."""
        return name

    def output(self, app_id: str, role: str, replica: int) -> Output:
        """Return a replica's output."""
        return OutputFile(self._app(app_id).log(role, replica))

    def _app(self, app_id: str) -> AppDir:
        if not _SAFE_NAME.fullmatch(app_id):
            raise LaunchError(f"app id {app_id!r} is not made of letters, digits, . _ -")
        return AppDir(self._state_dir / app_id)


def create_scheduler(
    session_name: str, *, state_dir: Path | str | None = None, **kwargs: object
) -> LocalDetached:
    """TorchX's factory. ``state_dir`` defaults to option ``[ett] local_state_dir``."""
    folder = Path(state_dir) if state_dir else config.load().local_state_dir
    return LocalDetached(session_name, folder.absolute())


def working_folder(role: Role, cwd: str | None) -> Path:
    """Return where a role's replicas run, given option ``cwd``."""
    if cwd:
        return Path(cwd).absolute()
    image = Path(role.image or "/dev/null")
    return image.absolute() if image.is_dir() else Path.cwd()


def _replica(app_id: str, role: Role, number: int, cwd: str | None) -> ReplicaRequest:
    folder = str(working_folder(role, cwd))
    filled = macros.Values(
        img_root=folder, app_id=app_id, replica_id=str(number), rank0_env=_RANK0_VARIABLE
    ).apply(role)
    entry = sys.executable if filled.entrypoint == "python" else filled.entrypoint
    return ReplicaRequest(
        role=role.name,
        id=number,
        argv=[entry, *filled.args],
        env={_RANK0_VARIABLE: "localhost", **filled.env},
        cwd=folder,
    )


def _from_elsewhere(app: AppDir, status: Status) -> shared.SchedulerStatus:
    """Tell a host that was restarted, and its processes with it, from another host."""
    host, own = status.place.host, here()
    if host != own.host or status.place.boot == own.boot:
        return _shared(status, "UNKNOWN", "other_host", f"the app runs on {host}")
    message = f"host {host} was restarted while app {status.app} ran"
    return _lost(status, lambda: record_loss(app, status, message))


def _lost(status: Status, record: Callable[[], Status]) -> shared.SchedulerStatus:
    try:
        return _shared(record())
    except OSError as error:
        return _shared(status, "UNKNOWN", "supervisor_lost", f"loss not recorded: {error}")


def _without_status(app: AppDir) -> shared.SchedulerStatus:
    with locked(app, wait_s=0, shared=True) as lock:
        raw = "starting" if lock is None else "unstarted"
    # The start may have succeeded between the two looks.
    status = app.read_status()
    if status is not None:
        return _shared(status)
    if app.started():
        problem = f"the status in {app.path} cannot be read"
        return shared.SchedulerStatus(state="UNKNOWN", raw="unreadable", message=problem)
    return shared.SchedulerStatus(state="SUBMITTED", raw=raw)


def _never_started(app_id: str) -> Status:
    return Status(
        app=app_id,
        place=here(),
        supervisor=None,
        state="CANCELLED",
        raw="cancelled",
        message="cancelled before it started",
        allocated_ns=None,
        started_ns=None,
        ended_ns=time.time_ns(),
        replicas=(),
    )


def _shared(
    status: Status, state: str = "", raw: str = "", message: str = ""
) -> shared.SchedulerStatus:
    return shared.SchedulerStatus(
        state=state or status.state,
        raw=raw or status.raw,
        allocated_ns=status.allocated_ns,
        started_ns=status.started_ns,
        ended_ns=status.ended_ns,
        replicas=tuple(
            shared.ReplicaStatus(r.role, r.id, r.state, r.exit_code, r.signal, status.place.host)
            for r in status.replicas
        ),
        message=message or status.message,
    )
