"""What :func:`airflow_ett.metric.measure` returns. Times and lengths are integer ns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from airflow_ett.events import AttemptId


class Span(NamedTuple):
    """A piece of an attempt's time with one phase.

    The spans of lane ``main`` partition the job's wall clock; those of other lanes lie beside them.
    """

    begin_ns: int
    end_ns: int
    phase: str
    attempt: AttemptId
    lane: str = "main"


class Recovery(NamedTuple):
    """One time to recover: its length, whether training advanced again, what had ended it."""

    ns: int
    recovered: bool
    cause: str


class Published(NamedTuple):
    """A version that was published from the job's checkpoint."""

    version: str | None
    uri: str | None
    begin: int | None
    end: int | None


class Checkpoint(NamedTuple):
    """One save.

    ``blocking_ns`` is the maximum over ranks; ``committed_ns`` is None if it never became durable.
    """

    uri: str
    cursor: int | None
    saved_ns: int | None
    committed_ns: int | None
    blocking_ns: int | None
    upload_ns: int | None
    bytes: int | None
    anchor: bool
    attempt: AttemptId


class Compile(NamedTuple):
    """One compilation; ``reason`` says why a compiled graph had to be compiled anew."""

    id: str | None
    attempt: AttemptId
    begin_ns: int
    duration_ns: int
    hits: int | None
    misses: int | None
    reason: str | None
    lane: str


@dataclass(frozen=True, slots=True)
class AttemptMetric:
    """One attempt from its begin to the next one's begin, or to the job's end.

    ``phases_ns`` sums to ``end_ns - begin_ns``. ``detected_ns`` is when the launcher knew that it
    was over. ``cause`` is None for a success and while it runs.
    """

    id: AttemptId
    try_number: int | None
    layer: str
    cause: str | None
    evidence: Mapping[str, Any]
    begin_ns: int
    end_ns: int
    detected_ns: int | None
    cursor_from: int | None
    cursor_to: int | None
    resumed_from: str | None
    phases_ns: Mapping[str, int]
    host: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the attempt as JSON-able data."""
        row: dict[str, Any] = dict(zip(AttemptId._fields, self.id, strict=True))
        row["try"] = self.try_number
        for name in _names(AttemptMetric):
            if name not in ("id", "try_number"):
                row[name] = _plain(getattr(self, name))
        return row


@dataclass(frozen=True, slots=True)
class JobMetric:
    """One job's numbers; ``docs/metric.md`` defines each.

    ``phases_ns``, ``components_ns`` and ``levels_ns`` each sum to ``wall_ns`` exactly. The
    percentages are None for a job without trainer events or without any time. ``frozen`` is False
    while the job lives: its numbers are provisional.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    generation: int
    deployment: str
    job: str
    state: str
    quality: str
    quality_reasons: tuple[str, ...]
    frozen: bool
    begin_ns: int
    end_ns: int
    wall_ns: int
    held_ns: int
    effective_ns: int
    ett_pct: float | None
    ett_pct_held: float | None
    ett_pct_paper: float | None
    tts_ns: int
    ttr: tuple[Recovery, ...]
    nof: int
    nof_by_cause: Mapping[str, int]
    nof_by_layer: Mapping[str, int]
    phases_ns: Mapping[str, int]
    components_ns: Mapping[str, int]
    levels_ns: Mapping[str, int]
    attempts: tuple[AttemptMetric, ...]
    checkpoints: tuple[Checkpoint, ...]
    compiles: tuple[Compile, ...]
    accelerators: int
    scheduler: str
    utt_ns: int
    nos: int
    csbt_ns: int
    wtt_ns: int
    at_risk_ns: int
    cause: str | None
    handle: str | None
    published: tuple[Published, ...]
    spans: tuple[Span, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the spans as JSON-able data: the keys of ``report --json``."""
        return {n: _plain(getattr(self, n)) for n in _names(JobMetric) if n != "spans"}


def _names(kind: type[JobMetric] | type[AttemptMetric]) -> list[str]:
    return [field.name for field in fields(kind)]


def _plain(value: Any) -> Any:
    if isinstance(value, AttemptMetric):
        return value.as_dict()
    if isinstance(value, AttemptId):
        return list(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, str) else value
