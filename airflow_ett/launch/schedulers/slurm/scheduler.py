"""``slurm`` as a TorchX scheduler.

An app is one job of one role, a task per node. Its id is its name, which is the job's name, so
submitting a name twice gives one app; on a cluster that is reached by ssh the id of Airflow's
connection goes before it (``<ssh_conn_id>:<name>``). Which job it is stands in the app's folder:
noted by the submitter, by the job when it starts, or by whoever finds the job under its name. Any
process that sees the folder can ask for the app's status, read its logs, cancel or list it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
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
from airflow_ett.launch.schedulers.logs import Output
from airflow_ett.launch.schedulers.outputs import Outputs
from airflow_ett.launch.schedulers.slurm import gres, session
from airflow_ett.launch.schedulers.slurm.answers import Job
from airflow_ett.launch.schedulers.slurm.avoidance import avoiding, exclusions, refuses_hosts
from airflow_ett.launch.schedulers.slurm.cluster import Cluster, cluster
from airflow_ett.launch.schedulers.slurm.folder import SAFE_NAME, Folder, Shape, pattern
from airflow_ett.launch.schedulers.slurm.options import RUN_OPTIONS, Opts, sbatch_options
from airflow_ett.launch.schedulers.slurm.script import batch_script, task_script
from airflow_ett.launch.schedulers.slurm.states import state_of, status_of
from airflow_ett.launch.schedulers.slurm.transport import Printed, Transport
from airflow_ett.launch.schedulers.slurm.values import is_connection
from airflow_ett.launch.status import SchedulerStatus

NAME = "slurm"

_OVER = ("already completing or completed", "Invalid job id")
"""What ``scancel`` says where there is nothing left to end."""

_OVER_CODE = 2021 & 0xFF
"""Its exit code where it says nothing of that: the last byte of Slurm's ESLURM_ALREADY_DONE."""


@dataclass(frozen=True, slots=True)
class Request:
    """An app as it is handed over: ``argv`` reads ``batch`` from stdin.

    ``exclusions`` are nodes to be excluded, or None, each of them fewer than the one before.
    """

    app_id: str
    shape: Shape
    argv: tuple[str, ...]
    exclusions: tuple[str | None, ...]
    batch: str
    task: str


class Slurm(Outputs, Scheduler[Opts]):  # type: ignore[misc]
    """The scheduler; apps live below ``state_dir``, unless a cluster has a place of its own.

    ``transport`` reaches this machine's own cluster otherwise than all in this process do.
    """

    def __init__(
        self, session_name: str, state_dir: Path, transport: Transport | None = None
    ) -> None:
        super().__init__(NAME, session_name)
        self._state_dir = state_dir
        self._own = cluster("") if transport is None else Cluster(transport)

    def _run_opts(self) -> runopts:
        return RUN_OPTIONS

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> None:
        """Refuse what could not run here. Resources need not be given."""
        if len(app.roles) != 1:
            names = ", ".join(role.name for role in app.roles) or "none"
            raise ValueError(f"an app has one role here, not {len(app.roles)} ({names})")
        if not SAFE_NAME.fullmatch(app.roles[0].name):
            problem = "is not made of letters, digits, . _ -"
            raise ValueError(f"role name {app.roles[0].name!r} {problem}")
        if cfg.get("ssh_conn_id"):
            session.check_installed()
        if cfg.get("requeue") is False and app.roles[0].max_retries > 0:
            problem = "requeue: Slurm starts no job again, as max_retries asks, with requeue=False"
            raise InvalidRunConfigException(problem, "requeue", cfg)
        if differs := gres.contradiction(cfg.get("gres"), app.roles[0].resource.gpu):
            raise InvalidRunConfigException(differs, "gres", cfg)

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[Request, Opts]:
        (role,), app_id = app.roles, self.app_id(app.name, {"ssh_conn_id": cfg.ssh_conn_id})
        _, folder = self._app(app_id)
        image = role.image if Path(role.image or "").is_absolute() else str(folder.path)
        cwd = cfg.cwd or image
        grace_s = max(1, round(max(cfg.grace_s, float(role.metadata.get(GRACE_KEY, 0)))))
        argv = (
            "sbatch",
            "--parsable",
            "--export=NONE",
            f"--job-name={app.name}",
            f"--chdir={cwd}",
            f"--output={pattern(folder.batch_log)}",
            "--open-mode=append",
            *sbatch_options(cfg, role.resource, role.num_replicas, grace_s),
        )
        request = Request(
            app_id=app_id,
            shape=Shape(role.name, role.num_replicas),
            argv=argv,
            exclusions=tuple(exclusions(cfg.exclude, cfg.failed_nodes)),
            batch=batch_script(app.name, folder, role, grace_s),
            task=task_script(app.name, role, cwd, cfg.setup),
        )
        return AppDryRunInfo(request, lambda shown: f"{shlex.join(_argv(shown))}\n\n{shown.batch}")

    def schedule(self, dryrun_info: AppDryRunInfo[Request, Opts]) -> str:
        """Submit the app and return its id.

        Raises :class:`LaunchError` when the app exists already, or Slurm refuses it.
        """
        request: Request = dryrun_info.request
        at, folder = self._app(request.app_id)
        try:
            with folder.locked():
                at.asking.forget()  # another process may have submitted it just now
                if folder.shape() is not None and at.job(folder) is not None:
                    raise LaunchError(f"app {request.app_id} exists already in {folder.path}")
                folder.write(request.shape, request.task)
                at.note(folder, _submit(at, request))
        except OSError as error:
            raise LaunchError(
                f"app {request.app_id} cannot be written to {folder.path} ([ett] "
                f"slurm_state_dir): {error}"
            ) from error
        return request.app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the app as TorchX shows it, or None when there is none of that id."""
        detail = self.detail(app_id)
        if detail is None:
            return None
        at, folder = self._app(app_id)
        return described(app_id, detail, at.transport.address(folder.batch_log.parent))

    def detail(self, app_id: str) -> SchedulerStatus | None:
        """Return all that is known of the app, or None where the cluster knows none of that id.

        Raises :class:`LaunchError` where the cluster cannot be asked.
        """
        if _parsed(app_id) is None:
            return None
        at, folder = self._app(app_id)
        shape = at.shape(folder)
        job = _settled(at, folder) if shape else None
        if shape is None or job is None:
            return None
        asked = state_of(job) == "FAILED" and folder.cancelled()
        status = status_of(job, shape.role, shape.replicas, asked=asked)
        if status.terminal and not status.may_return:
            folder.note_over(job.id)
        return status

    def avoiding(self, cfg: Mapping[str, Any], hosts: Sequence[str]) -> Mapping[str, Any]:
        """Return run options by which an app comes to none of ``hosts`` that it can do without."""
        return avoiding(cfg, hosts)

    def reach(self, cfg: Mapping[str, Any]) -> None:
        """Ask the cluster for its jobs. Raises :class:`LaunchError` where it cannot be asked."""
        self._cluster(str(cfg.get("ssh_conn_id") or "")).asking.named("")

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """Return every app of the state directory that the cluster knows.

        That is the one which ``cfg`` names an SSH connection to, else this machine's own.
        """
        asked = cfg or {}
        at = self._cluster(str(asked.get("ssh_conn_id") or ""))
        return [
            ListAppResponse(app_id=app_id, state=AppState[detail.state or "UNKNOWN"], name=name)
            for name in at.transport.folders(self._root(at))
            if (detail := self.detail(app_id := self.app_id(name, asked)))
        ]

    def _cancel_existing(self, app_id: str) -> None:
        """Ask for the app's end. Its batch script has the trainers end, and ends after the grace.

        Who has no nodes has nothing to end, and what ends already needs no more time.
        """
        at, folder = self._app(app_id)
        at.asking.forget()  # scancel tries for minutes to signal a job that has no nodes
        job = at.job(folder)
        if job is None:
            return
        folder.note_cancel()
        runs = state_of(job) == "RUNNING" and job.state != "COMPLETING"
        how = ("--batch", "--signal=USR1") if runs else ()
        result = at.transport.run(("scancel", *how, str(job.id)))
        at.asking.forget()
        over = result.code == _OVER_CODE or any(text in result.err for text in _OVER)
        if result.code and not over:
            text = result.err.strip() or str(result.code)
            raise LaunchError(f"scancel of job {job.id} (app {app_id}) failed: {text}")

    def app_id(self, name: str, cfg: Mapping[str, Any]) -> str:
        """Return the id of an app of this name."""
        conn_id = cfg.get("ssh_conn_id")
        return f"{conn_id}:{name}" if conn_id else name

    def output(self, app_id: str, role: str, replica: int) -> Output:
        """Return a replica's output, of all its runs."""
        at, folder = self._app(app_id)
        return Printed(at.transport, folder.log(role, replica))

    def _app(self, app_id: str) -> tuple[Cluster, Folder]:
        parsed = _parsed(app_id)
        if parsed is None:
            raise LaunchError(f"app id {app_id!r} is not made of letters, digits, . _ -")
        conn_id, name = parsed
        at = self._cluster(conn_id)
        return at, Folder(self._root(at) / name, at.transport)

    def _root(self, at: Cluster) -> Path:
        return at.transport.state_dir(self._state_dir)

    def _cluster(self, conn_id: str) -> Cluster:
        return cluster(conn_id) if conn_id else self._own


def _parsed(app_id: str) -> tuple[str, str] | None:
    """Return connection and name, None where the id is none of ours."""
    conn_id, _, name = app_id.rpartition(":")
    sound = SAFE_NAME.fullmatch(name) and (not conn_id or is_connection(conn_id))
    return (conn_id, name) if sound else None


def _settled(at: Cluster, folder: Folder) -> Job | None:
    """Return an app's job, None once nobody submits one: sbatch may outlive who runs it."""
    job = at.job(folder)
    if job is None and folder.job_id() is None:
        with folder.locked():
            at.asking.forget()
            job = at.job(folder)
    return job


def _argv(request: Request, which: int = 0) -> tuple[str, ...]:
    """Return the command that hands an app over, with one of its exclusions."""
    exclude = request.exclusions[which]
    return (*request.argv, *((f"--exclude={exclude}",) if exclude else ()))


def _submit(at: Cluster, request: Request) -> int:
    """Submit with as many nodes excluded as Slurm allows."""
    try:
        for which in range(len(request.exclusions)):
            result = at.transport.run(_argv(request, which), request.batch)
            if not (result.code and refuses_hosts(result.err)):
                break
    finally:
        at.asking.forget()
    number = result.out.strip().partition(";")[0]
    if result.code or not number.isdigit():
        told = (result.err or result.out).strip() or f"it ended with {result.code}"
        raise LaunchError(f"sbatch refused app {request.app_id}: {told}")
    return int(number)


def create_scheduler(
    session_name: str, *, state_dir: Path | str | None = None, **kwargs: object
) -> Slurm:
    """TorchX's factory. ``state_dir`` defaults to option ``[ett] slurm_state_dir``."""
    return Slurm(session_name, Path(state_dir) if state_dir else config.load().slurm_state_dir)
