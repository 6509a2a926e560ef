"""The demo's running commentary: an event of the job log as a line for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_ett.events import AttemptId, Event, Kind, Layer
from airflow_ett.metric.format import accelerator_hours, duration
from airflow_ett.metric.outcomes import named, told

_LAYERS = {
    Layer.FIRST: "first try",
    Layer.RELAUNCH: "relaunched within the try",
    Layer.AIRFLOW: "Airflow's retry",
}
_SECOND = 1_000_000_000


class Narrator:
    """Turns a job's events, in order, into lines. Attempts are counted from 1."""

    def __init__(self) -> None:
        self._attempts: list[AttemptId] = []
        self._submitted: dict[AttemptId, Event] = {}
        self._died_ns: dict[AttemptId, int] = {}
        self._accelerators = 0
        self._tell: dict[str, Callable[[Event, str], str | None]] = {
            Kind.JOB_OPENED: self._opened,
            Kind.SUBMITTED: self._begun,
            Kind.ADOPTED: self._adopted,
            Kind.PROCESS_STARTED: self._started,
            Kind.PROCESS_ENDED: self._ended,
            Kind.RESUMED: self._resumed,
            Kind.COMPILE: self._compiled,
            Kind.LEVER: self._pulled,
            Kind.CHECKPOINT_COMMITTED: self._committed,
            Kind.ATTEMPT_ENDED: self._judged,
            Kind.JOB_ENDED: self._closed,
            Kind.PUBLISHED: self._published,
        }

    def line(self, event: Event) -> str | None:
        """Return what to say about the event, None where it is not worth a line."""
        tell = self._tell.get(event.kind)
        return tell(event, self._name(event.attempt)) if tell else None

    def _name(self, attempt: AttemptId | None) -> str:
        if attempt is None:
            return "training"
        if attempt not in self._attempts:
            self._attempts.append(attempt)
        return f"attempt {self._attempts.index(attempt) + 1}"

    def _opened(self, event: Event, name: str) -> None:
        self._accelerators = int(event.data.get("accelerators") or 0)

    def _begun(self, event: Event, name: str) -> str:
        data = event.data
        if event.attempt is not None:
            self._submitted[event.attempt] = event
        cursor = int(data.get("resume_cursor") or 0)
        start = f", resumes at cursor {cursor:,}" if cursor else ""
        layer = _LAYERS.get(data.get("layer", ""), data.get("layer"))
        return f"{name}: submitted ({layer}{start}) as {data.get('handle')}"

    def _adopted(self, event: Event, name: str) -> str | None:
        begun = self._submitted.get(event.attempt) if event.attempt else None
        if begun is None or begun.data.get("try") == event.data.get("try"):
            return None
        return f"{name}: found alive and adopted by try {event.data.get('try')}"

    def _started(self, event: Event, name: str) -> str | None:
        if event.data.get("role") != "trainer" or event.rank not in (None, 0):
            return None
        begun = self._submitted.get(event.attempt) if event.attempt else None
        after = f", {duration(event.time_ns - begun.time_ns)} after submission" if begun else ""
        return f"{name}: trainer runs as process {event.data.get('pid')}{after}"

    def _ended(self, event: Event, name: str) -> str | None:
        if event.data.get("role") != "trainer" or event.attempt is None:
            return None
        self._died_ns.setdefault(event.attempt, event.time_ns)
        if event.data.get("signal"):
            return f"{name}: trainer was ended by signal {event.data['signal']}"
        return f"{name}: trainer ended with exit code {event.data.get('exit_code')}"

    def _resumed(self, event: Event, name: str) -> str | None:
        cursor = event.data.get("cursor")
        return f"{name}: state restored at cursor {cursor:,}" if cursor else None

    def _compiled(self, event: Event, name: str) -> str | None:
        length = int(event.data.get("duration_ns") or 0)
        return f"{name}: torch.compile took {duration(length)}" if length >= _SECOND else None

    def _pulled(self, event: Event, name: str) -> str | None:
        if event.rank not in (None, 0):
            return None
        return f"{name}: {named(event.data['lever'])} {told(event.data)}"

    def _committed(self, event: Event, name: str) -> str | None:
        if not event.data.get("anchor"):
            return None
        return f"{name}: anchor checkpoint committed at cursor {event.data.get('cursor', 0):,}"

    def _judged(self, event: Event, name: str) -> str:
        cause = event.data.get("cause")
        if cause is None:
            return f"{name}: succeeded"
        died = self._died_ns.get(event.attempt) if event.attempt else None
        after = (
            f", seen {duration(event.time_ns - died)} after the trainer's end"
            if died is not None
            else ""
        )
        return f"{name}: failed{after}; cause {cause}: {_first_line(event.data.get('evidence'))}"

    def _closed(self, event: Event, name: str) -> str:
        return f"training {event.data.get('state')}: the accelerators are free"

    def _published(self, event: Event, name: str) -> str:
        data = event.data
        if data.get("existed"):
            return f"version {data.get('version')} was published before: {data.get('uri')}"
        took_ns = int(data.get("end") or 0) - int(data.get("begin") or 0)
        told = f"published version {data.get('version')} in {duration(took_ns)}"
        if self._accelerators:
            released = accelerator_hours(took_ns * self._accelerators)
            told += f", {released} accelerator-hours released"
        return f"{told}: {data.get('uri')}"


def _first_line(evidence: Any) -> str:
    text = str((evidence or {}).get("text") or "no evidence").strip()
    return text.splitlines()[0][:160]
