"""One try's hold on a job, as plain data that a trigger can be rebuilt from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from airflow.sdk import log as airflow_log
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_ett import config
from airflow_ett.checkpoints import open_checkpoint
from airflow_ett.errors import CheckpointError, ConfigurationError, Fenced, JobLogError
from airflow_ett.events import Cause, JobKey, Kind
from airflow_ett.hooks.masking import redactor
from airflow_ett.launch.ender import Ender
from airflow_ett.launch.history import fold
from airflow_ett.launch.joblog import JobLog
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.watcher import Watcher


@dataclass(frozen=True, slots=True)
class JobHold:
    """What a process needs to take a job over in the name of a try. Only JSON types inside.

    ``run_dir`` is the place of the job's log, whatever it is.
    """

    key: Mapping[str, Any]
    run_dir: str
    checkpoints: str
    inherit: Mapping[str, Any] | None
    request: Mapping[str, Any]
    try_number: int
    max_tries: int
    limits: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        job: OpenJob,
        request: Request,
        *,
        try_number: int,
        max_tries: int,
        limits: Limits,
    ) -> JobHold:
        """Describe the hold of a try on an open job."""
        return cls(
            key=asdict(job.log.key),
            run_dir=job.log.place,
            checkpoints=job.checkpoints,
            inherit=job.inherit,
            request=request.as_dict(),
            try_number=try_number,
            max_tries=max_tries,
            limits=asdict(limits),
        )

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> JobHold:
        """Return the hold that a trigger was stored with, by whichever release.

        What only another release knows is left out, limits that it did not keep are the usual ones.
        Raises :class:`JobLogError` when it cannot be read all the same.
        """
        known = {"limits": {"deadline_ns": kept.get("deadline_ns")}} | _known(cls, kept)
        try:
            request, limits = _known(Request, known["request"]), _known(Limits, known["limits"])
            return cls(**known | {"request": request, "limits": limits})
        except (AttributeError, KeyError, TypeError) as error:
            raise JobLogError(
                "This task was deferred by another release of airflow-ett, whose trigger cannot be "
                f"read ({error}). Its training goes on; clear the task to have it resumed by this "
                "release."
            ) from error

    def idle(self) -> bool:
        """Return whether nothing of the job runs or was intended: whoever goes on with it submits.

        Raises :class:`JobLogError` when its log cannot be read.
        """
        log = Root.of(config.load()).log(JobKey(**self.key), place=self.run_dir)
        return fold(log.launcher_events()).live is None and log.newest() > 0

    def take(self, mode: str, poll_interval_s: float, *, after: int | None = None) -> Watcher:
        """Claim the job for this process and return its watcher.

        ``mode`` is ``task`` for the first claim of a try's first task process, ``again`` for any
        other of a task process, ``trigger`` for a trigger's. With ``after``, only if nobody has
        claimed since that epoch; else :class:`Fenced` is raised.

        Raises :class:`JobLogError` when the log cannot be used.
        """
        # Importing TorchX takes a while, which DAG parsing is spared.
        from airflow_ett.launch.gateway import Gateway

        root, redact = Root.of(config.load()), redactor(self.request["env"])
        log = root.log(JobKey(**self.key), place=self.run_dir, redact=redact)
        if mode == "trigger" and log.newest() == 0:  # a task has claimed it before
            raise JobLogError(
                f"Job {log.key} was begun in {self.run_dir}, where nothing is now. Is the folder "
                "of [ett] run_root mounted on this triggerer, or has the API lost its database?"
            )
        claim = log.claim(
            try_number=self.try_number, max_tries=self.max_tries, mode=mode, after=after
        )
        return Watcher(
            OpenJob(log, self.checkpoints, self.inherit, token=_token(root, log)),
            claim,
            Request(**self.request),
            Gateway(),
            limits=Limits(**self.limits),
            poll_interval_s=poll_interval_s,
        )


def end_job(
    job: OpenJob,
    *,
    try_number: int,
    max_tries: int,
    cause: Cause,
    text: str,
    wait_s: float,
    after: int | None = None,
) -> str | None:
    """End a job whose task failed for good; return what came of it, in words.

    A training that still runs is cancelled once and given ``wait_s`` to end; ``text`` says why.
    Returns None when it never began, or has ended. With ``after``, only if nobody has claimed
    it since that epoch. When the task's own alarm rings meanwhile, the job is closed without more
    waiting: the alarm rings once, and nobody else would close it.

    Raises :class:`Fenced` when another owner has it, :class:`LaunchError` when the scheduler cannot
    be asked, :class:`JobLogError` when the log cannot be used.
    """
    from airflow_ett.launch.gateway import Gateway

    log = Root.of(config.load()).log(job.log.key, place=job.log.place, redact=redactor({}))
    epoch = log.newest()
    history = fold(log.launcher_events())
    if history.opened is None or history.ended is not None:
        return None
    if history.try_number > try_number:
        raise Fenced(f"Job {log.key} belongs to try {history.try_number} by now.")
    opened = history.opened
    request = Request(
        str(opened.get("component")), [], str(opened.get("scheduler")), max_relaunches=0
    )

    def give_up(after: int, wait_s: float) -> str:
        claim = log.claim(try_number=try_number, max_tries=max_tries, mode="again", after=after)
        ender = Ender(replace(job, log=log), claim, request, Gateway())
        try:
            return ender.give_up(cause, text, wait_s)
        except AirflowTaskTimeout:
            return give_up(claim.epoch, 0.0)

    return give_up(epoch if after is None else after, wait_s)


def _token(root: Root, log: JobLog) -> Callable[[], str] | None:
    """Return what makes the trainers' secret for the API, None where they need none."""
    if not log.place.startswith(root.address) or not root.is_api:
        return None

    def token() -> str:
        made = root.trainer_token(log.key)
        airflow_log.mask_secret(made)
        return made

    return token


def try_began_ns(log: JobLog, try_number: int) -> int | None:
    """Return when a try's first task process claimed its job; None if none has.

    A run that was deleted and made again counts its tries anew: the newest first claim counts.
    """
    firsts = [
        event.time_ns
        for event in log.launcher_events()
        if event.kind == Kind.CLAIMED
        and (event.data["mode"], event.data["try"]) == ("task", try_number)
    ]
    return max(firsts, default=None)


def _known(kind: type[JobHold | Request | Limits], kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of ``kept`` that a class of ours has."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in kept.items() if name in names}


def check_checkpoints(request: Request) -> None:
    """Raise :class:`ConfigurationError` unless ``resume`` and ``init_from`` name checkpoints."""
    for parameter, value in (("resume", request.resume), ("init_from", request.init_from)):
        if value in (None, "auto", "never"):
            continue
        try:
            open_checkpoint(str(value))
        except (CheckpointError, OSError) as error:
            raise ConfigurationError(parameter, str(error)) from error
        except ConfigurationError as error:  # it knows of no parameter but checkpoint_uri
            raise ConfigurationError(parameter, error.problem) from error
