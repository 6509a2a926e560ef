"""``slurm`` as a TorchX scheduler.

An app is one job of one role, a task per node; its id is its name, which is the job's name, so
submitting a name twice gives one app. Which job it is stands in the app's folder: noted by the
submitter, by the job when it starts, or by whoever finds the job under its name. Any process that
sees the folder can ask for the app's status, read its logs, cancel or list it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
)
from torchx.specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    InvalidRunConfigException,
    runopts,
)

from airflow_ett import config
from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.describing import described
from airflow_ett.launch.schedulers.local_detached import GRACE_KEY
from airflow_ett.launch.schedulers.outputs import Outputs
from airflow_ett.launch.schedulers.slurm.answers import Job
from airflow_ett.launch.schedulers.slurm.asking import Asking
from airflow_ett.launch.schedulers.slurm.folder import SAFE_NAME, Folder, Shape
from airflow_ett.launch.schedulers.slurm.options import RUN_OPTIONS, Opts, sbatch_options
from airflow_ett.launch.schedulers.slurm.script import batch_script, task_script
from airflow_ett.launch.schedulers.slurm.states import state_of, status_of
from airflow_ett.launch.schedulers.slurm.transport import Local, Transport
from airflow_ett.launch.status import SchedulerStatus

NAME = "slurm"

_OVER = ("already completing or completed", "Invalid job id")
"""What ``scancel`` says where there is nothing left to end."""

_CLOCKS_MIN = 10
"""Minutes by which the clocks of folder and accounts may differ."""


@dataclass(frozen=True, slots=True)
class Request:
    """An app as it is handed over: ``argv`` reads ``batch`` from stdin."""

    app: str
    shape: Shape
    argv: tuple[str, ...]
    batch: str
    task: str


class Slurm(Outputs, Scheduler[Opts]):  # type: ignore[misc]
    """The scheduler; apps live below ``state_dir`` and belong to its owner."""

    def __init__(self, session_name: str, state_dir: Path, transport: Transport) -> None:
        super().__init__(NAME, session_name)
        self._state_dir = state_dir
        self._transport = transport
        self._asking = Asking(transport)

    def _run_opts(self) -> runopts:
        return RUN_OPTIONS

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> None:
        """Refuse what could not run here. Resources need not be given."""
        cwd = cfg.get("cwd")
        if cwd is not None and not Path(str(cwd)).is_absolute():
            problem = f"cwd: {cwd!r} is no absolute path, and nodes know no other"
            raise InvalidRunConfigException(problem, "cwd", cfg)
        if len(app.roles) != 1:
            names = ", ".join(role.name for role in app.roles) or "none"
            raise ValueError(f"an app has one role here, not {len(app.roles)} ({names})")
        if not SAFE_NAME.fullmatch(app.roles[0].name):
            problem = "is not made of letters, digits, . _ -"
            raise ValueError(f"role name {app.roles[0].name!r} {problem}")

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[Request, Opts]:
        (role,), folder = app.roles, self._app(app.name)
        image = role.image if Path(role.image or "").is_absolute() else str(folder.path)
        cwd = cfg.cwd or image
        argv = (
            "sbatch",
            "--parsable",
            "--export=NONE",
            f"--job-name={app.name}",
            f"--chdir={cwd}",
            f"--output={folder.batch_log}",
            "--open-mode=append",
            *sbatch_options(cfg, role.resource, role.num_replicas),
        )
        request = Request(
            app=app.name,
            shape=Shape(role.name, role.num_replicas),
            argv=argv,
            batch=batch_script(
                app.name,
                folder,
                role,
                max(float(cfg.grace_s), float(role.metadata.get(GRACE_KEY, 0))),
            ),
            task=task_script(app.name, role, cwd, cfg.setup),
        )
        return AppDryRunInfo(request, lambda shown: f"{shlex.join(shown.argv)}\n\n{shown.batch}")

    def schedule(self, dryrun_info: AppDryRunInfo[Request, Opts]) -> str:
        """Submit the app and return its id, which is its name.

        Raises :class:`LaunchError` when the app exists already, or Slurm refuses it.
        """
        request: Request = dryrun_info.request
        folder = self._app(request.app)
        try:
            with folder.locked():
                self._asking.forget()  # another process may have submitted it just now
                if folder.shape() is not None and self._job(folder) is not None:
                    raise LaunchError(f"app {request.app} exists already in {folder.path}")
                folder.write(request.shape, request.task)
                folder.note_job(self._submit(request))
        except OSError as error:
            raise LaunchError(
                f"app {request.app} cannot be written to {folder.path} ([ett] slurm_state_dir): "
                f"{error}"
            ) from error
        return request.app

    def _submit(self, request: Request) -> int:
        try:
            result = self._transport.run(request.argv, request.batch)
        finally:
            self._asking.forget()
        number = result.out.strip().partition(";")[0]
        if result.code or not number.isdigit():
            told = (result.err or result.out).strip() or f"it ended with {result.code}"
            raise LaunchError(f"sbatch refused app {request.app}: {told}")
        return int(number)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the app as TorchX shows it, or None when there is none of that id."""
        detail = self.detail(app_id)
        if detail is None:
            return None
        return described(app_id, detail, self._app(app_id).batch_log.parent)

    def detail(self, app_id: str) -> SchedulerStatus | None:
        """Return all that is known of the app, or None where the cluster knows none of that id.

        Raises :class:`LaunchError` where the cluster cannot be asked.
        """
        if not SAFE_NAME.fullmatch(app_id):
            return None
        folder = self._app(app_id)
        shape = folder.shape()
        job = self._job(folder) if shape else None
        if shape is None or job is None:
            return None
        return status_of(job, shape.role, shape.replicas, asked=folder.cancel.exists())

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """Return every app of the state directory that the cluster knows."""
        names = (path.name for path in sorted(self._state_dir.glob("*")) if path.is_dir())
        return [
            ListAppResponse(app_id=name, state=AppState[detail.state or "UNKNOWN"], name=name)
            for name in names
            if (detail := self.detail(name))
        ]

    def _cancel_existing(self, app_id: str) -> None:
        """Ask for the app's end. Its batch script has the trainers end, and ends after the grace.

        Who has no nodes has nothing to end, and what ends already needs no more time.
        """
        folder = self._app(app_id)
        self._asking.forget()  # scancel tries for minutes to signal a job that has no nodes
        job = self._job(folder)
        if job is None:
            return
        folder.cancel.touch(mode=0o600)
        runs = state_of(job) == "RUNNING" and job.state != "COMPLETING"
        how = ("--batch", "--signal=USR1") if runs else ()
        result = self._transport.run(("scancel", *how, str(job.id)))
        self._asking.forget()
        if result.code and not any(text in result.err for text in _OVER):
            text = result.err.strip() or str(result.code)
            raise LaunchError(f"scancel of job {job.id} (app {app_id}) failed: {text}")

    def log_path(self, app_id: str, role: str, replica: int) -> Path:
        """The file that holds a replica's output, of all its runs."""
        return self._app(app_id).log(role, replica)

    def _app(self, app_id: str) -> Folder:
        if not SAFE_NAME.fullmatch(app_id):
            raise LaunchError(f"app id {app_id!r} is not made of letters, digits, . _ -")
        return Folder(self._state_dir / app_id)

    def _job(self, folder: Folder) -> Job | None:
        """Return the app's job as the cluster sees it, None where it knows none."""
        name, number = folder.path.name, folder.job_id()
        if number is not None:
            job = self._asking.job(number)
            return job if job is not None and job.name == name else None  # numbers come again
        job = self._asking.named(name) or self._accounted(folder)
        if job is not None:
            folder.note_job(job.id)
        return job

    def _accounted(self, folder: Folder) -> Job | None:
        """Look an app's job up in the accounts, by name, since its folder was made."""
        minutes = int(folder.age_s(time.time()) / 60) + _CLOCKS_MIN
        which = (f"--name={folder.path.name}", f"--starttime=now-{minutes}minutes")
        return max(self._asking.accounted(*which), key=lambda job: job.id, default=None)


def create_scheduler(
    session_name: str, *, state_dir: Path | str | None = None, **kwargs: object
) -> Slurm:
    """TorchX's factory. ``state_dir`` defaults to option ``[ett] slurm_state_dir``."""
    folder = Path(state_dir) if state_dir else config.load().slurm_state_dir
    return Slurm(session_name, folder.absolute(), Local())
