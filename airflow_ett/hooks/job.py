"""One try's hold on a job, as plain data that a trigger can be rebuilt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import open_checkpoint
from airflow_ett.errors import CheckpointError, ConfigurationError
from airflow_ett.events import AttemptId, Cause, JobKey, JobState, Kind, RunDir
from airflow_ett.hooks.masking import redactor
from airflow_ett.launch.history import fold
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.request import Request
from airflow_ett.launch.rundirlog import RunDirLog
from airflow_ett.launch.watcher import Watcher


@dataclass(frozen=True, slots=True)
class JobHold:
    """What a process needs to take a job over in the name of a try. Only JSON types inside."""

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

    def take(self, mode: str, poll_interval_s: float) -> Watcher:
        """Claim the job for this process (``mode``: ``task``, ``trigger``) and return its watcher.

        Raises :class:`JobLogError` when the run directory cannot be used.
        """
        # Importing TorchX takes a while, which DAG parsing is spared.
        from airflow_ett.launch.gateway import Gateway

        redact = redactor(self.request["env"])
        log = RunDirLog(RunDir(Path(self.run_dir)), JobKey(**self.key), redact=redact)
        claim = log.claim(try_number=self.try_number, max_tries=self.max_tries, mode=mode)
        return Watcher(
            OpenJob(log, self.checkpoints, self.inherit),
            claim,
            Request(**self.request),
            Gateway(),
            limits=Limits(**self.limits),
            poll_interval_s=poll_interval_s,
        )


def end_job(
    key: Mapping[str, Any], run_dir: str, *, try_number: int, max_tries: int, cause: Cause
) -> None:
    """Write the terminal event of a job that failed for good, unless it has one or never began.

    A submission that was told to end and has not yet is over by that as far as the job goes; the
    next generation waits for it.

    Raises :class:`JobLogError` when the run directory cannot be used.
    """
    log = RunDirLog(RunDir(Path(run_dir)), JobKey(**key))
    history = fold(log.launcher_events())
    if history.opened is None or history.ended is not None:
        return
    log.claim(try_number=try_number, max_tries=max_tries, mode="task")
    live = history.live
    if live is not None and live.cancel_reason is not None:
        text = live.cancel_text or f"Cancelled on request: {live.cancel_reason}."
        evidence = {"source": "launcher", "text": f"{text} It was still ending.", "seen": False}
        log.append(
            Kind.ATTEMPT_ENDED,
            {"cause": live.cancel_reason, "evidence": evidence},
            attempt=AttemptId(live.number, live.restart),
        )
    log.append(Kind.JOB_ENDED, {"state": JobState.FAILED, "cause": cause})


def check_checkpoints(request: Request) -> None:
    """Raise :class:`ConfigurationError` unless ``resume`` and ``init_from`` name checkpoints."""
    for parameter, value in (("resume", request.resume), ("init_from", request.init_from)):
        if value in (None, "auto", "never"):
            continue
        try:
            open_checkpoint(str(value))
        except CheckpointError as error:
            raise ConfigurationError(parameter, str(error)) from error
