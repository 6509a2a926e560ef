"""What the log says of the job as a whole: identity, state, what it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import Event, JobKey, JobState, Kind
from airflow_ett.metric.evidence.fields import Notes, order, table, text, whole
from airflow_ett.metric.evidence.intake import Intake
from airflow_ett.metric.result import Published


@dataclass(frozen=True, slots=True)
class Job:
    """The job's own facts. ``ended_ns`` is the time of its terminal event, None while it lives."""

    id: str
    key: JobKey
    scheduler: str
    accelerators: int
    inherited_hwm: int
    state: str
    cause: str | None
    ended_ns: int | None
    newest_ns: int
    handle: str | None
    has_trainer: bool
    published: tuple[Published, ...]

    @property
    def local(self) -> bool:
        """True where the scheduler has no queue: it starts processes on this machine."""
        return self.scheduler.startswith("local")


def read_job(intake: Intake, notes: Notes) -> Job:
    """Collect the job's facts from what came in."""
    told = intake.told
    opened = next(iter(told.get(Kind.JOB_OPENED, ())), None)
    if opened is None:
        notes.add("no job_opened event: the job's identity and scheduler are unknown")
    data = opened.data if opened else {}
    key = table(data, "key")
    ended = next(iter(told.get(Kind.JOB_ENDED, ())), None)
    state, cause = _ending(ended, notes)
    return Job(
        id=intake.job or "",
        key=JobKey(
            deployment=text(key, "deployment") or "",
            dag_id=text(key, "dag_id") or "",
            run_id=text(key, "run_id") or "",
            task_id=text(key, "task_id") or "",
            map_index=-1 if (index := whole(key, "map_index")) is None else index,
            generation=whole(key, "generation") or 1,
        ),
        scheduler=text(data, "scheduler") or "",
        accelerators=whole(data, "accelerators") or 0,
        inherited_hwm=whole(table(data, "inherit"), "hwm") or 0,
        state=state,
        cause=cause,
        ended_ns=ended.time_ns if ended else None,
        newest_ns=intake.newest_ns,
        handle=_handle([*told.get(Kind.SUBMITTED, ()), *told.get(Kind.ADOPTED, ())]),
        has_trainer=intake.has_trainer,
        published=tuple(_published(event.data) for event in told.get(Kind.PUBLISHED, ())),
    )


def _published(data: Mapping[str, Any]) -> Published:
    begin, end = whole(data, "begin"), whole(data, "end")
    existed = data.get("existed") is True
    took_ns = 0 if begin is None or end is None else max(0, end - begin)
    return Published(
        version=text(data, "version"),
        uri=text(data, "uri"),
        begin=begin,
        end=end,
        name=text(data, "name"),
        registry=text(data, "registry"),
        checkpoint=text(data, "checkpoint"),
        cursor=whole(data, "cursor"),
        bytes=whole(data, "bytes"),
        digest=text(data, "digest"),
        existed=existed,
        released_ns=0 if existed else took_ns,
    )


def _ending(ended: Event | None, notes: Notes) -> tuple[str, str | None]:
    if ended is None:
        return JobState.RUNNING.value, None
    state = text(ended.data, "state")
    if state not in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED):
        notes.add(f"job_ended with state {state!r}: taken for failed")
        state = JobState.FAILED.value
    return state, text(ended.data, "cause")


def _handle(events: list[Event]) -> str | None:
    known = [
        (whole(event.data, "submission") or 0, order(event), handle)
        for event in events
        if (handle := text(event.data, "handle")) is not None
    ]
    return max(known)[2] if known else None
