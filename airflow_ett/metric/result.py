"""What :func:`airflow_ett.metric.measure` returns. Times and lengths are integer ns."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeVar, overload

from airflow_ett.events import AttemptId
from airflow_ett.metric.progress import Progress

_T = TypeVar("_T")


class Span(NamedTuple):
    """A piece of an attempt's time with one phase.

    The spans of lane ``main`` partition the job's wall clock; those of other lanes lie beside them.
    """

    begin_ns: int
    end_ns: int
    phase: str
    attempt: AttemptId
    lane: str = "main"


class Lane(NamedTuple):
    """An attempt's spans, packed: there may be a million.

    Span ``i`` of the main lane is ``phases[keys[i]]`` from ``edges[i]`` to ``edges[i + 1]``;
    ``beside`` are those of other lanes.
    """

    attempt: AttemptId
    edges: array[int]
    keys: array[int]
    phases: tuple[str, ...]
    beside: tuple[Span, ...]


class Booking(NamedTuple):
    """What a span is booked to: its phase, and the component that the phase belongs to there."""

    phase: str
    component: str


Booked = Counter[Booking]
"""Nanoseconds by booking."""


class Recovery(NamedTuple):
    """One time to recover, after ``attempt`` was interrupted by ``cause``.

    ``recovered`` says whether training advanced again, ``layer`` who began the next attempt
    (``none`` where nobody did), ``utt_ns`` the training that was lost.
    """

    ns: int
    recovered: bool
    cause: str
    layer: str
    attempt: AttemptId
    utt_ns: int


class Published(NamedTuple):
    """A version that was published from one of the job's checkpoints, apart from its trainer.

    ``name`` is the model's in the registry; ``existed`` says that the publisher found it there,
    whole. ``released_ns`` is for how long publishing in the trainer would have held the job's
    accelerators: from ``begin`` to ``end``, and not at all where it existed.
    """

    version: str | None
    uri: str | None
    begin: int | None
    end: int | None
    name: str | None
    registry: str | None
    checkpoint: str | None
    cursor: int | None
    bytes: int | None
    digest: str | None
    existed: bool
    released_ns: int


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


class Slowest(NamedTuple):
    """The rank that took longest over a phase, how long it took, and where it ran if told."""

    rank: int
    ns: int
    host: str | None = None


class Lever(NamedTuple):
    """What became of one of the trainer's levers: what :mod:`airflow_ett.trainer.levers` told.

    ``duration_ns`` is how long it took, ``reason`` says why in words, ``rank`` is who told.
    """

    lever: str
    outcome: str
    reason: str | None
    duration_ns: int | None
    bytes: int | None
    rank: int


class Skew(NamedTuple):
    """How far the trainer's clock is ahead of the launcher's (behind, if negative).

    It is between ``at_least_ns`` and ``at_most_ns`` (None: not bounded): nothing of an attempt can
    happen before it was submitted or after it was found ended. ``ns`` is the nearest to 0 of these,
    so 0 where nothing proves that the clocks differ.
    """

    ns: int
    at_least_ns: int | None
    at_most_ns: int | None


class Window(NamedTuple):
    """The last part of the wall clock; ``split`` if it cuts a coalesced interval, pro rata."""

    begin_ns: int
    end_ns: int
    wall_ns: int
    effective_ns: int
    ett_pct: float | None
    components_ns: Mapping[str, int]
    split: bool


@dataclass(frozen=True, slots=True)
class AttemptMetric:
    """One attempt from its begin to the next one's begin, or to the job's end.

    ``phases_ns`` sums to ``end_ns - begin_ns``, less what of it is excluded. ``detected_ns`` is
    when the launcher knew that it was over. ``cause`` is None for a success and while it runs.
    ``log`` is where rank 0's output is. ``slowest`` tells by phase which of several ranks took
    longest. ``hosts`` are those of its nodes, in order, ``host`` is that of the first one.
    ``waits`` tells by the scheduler's reason for how long it gave that one, ``levers`` what became
    of the trainer's levers. ``booked`` are the phases with the component that each belongs to
    there; it is no part of :meth:`as_dict`.
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
    hosts: tuple[str, ...]
    log: str | None
    clock_skew: Skew | None
    slowest: Mapping[str, Slowest]
    waits: Mapping[str, int]
    levers: tuple[Lever, ...]
    booked: Mapping[Booking, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the attempt as JSON-able data."""
        row: dict[str, Any] = dict(zip(AttemptId._fields, self.id, strict=True))
        row["try"] = self.try_number
        for name in _names(AttemptMetric):
            if name not in ("id", "try_number", "booked"):
                row[name] = _plain(getattr(self, name))
        return row


@dataclass(frozen=True, slots=True)
class JobMetric:
    """One job's numbers; ``docs/metric.md`` defines each.

    ``phases_ns``, ``components_ns`` and ``levels_ns`` each sum to ``wall_ns`` exactly,
    ``held_components_ns`` to ``held_ns``, each of ``positions_ns`` (bucket -> phase) to its bucket
    in ``levels_ns``. ``wall_ns`` is ``end_ns - begin_ns`` without ``excluded_ns``. The percentages
    are None for a job without trainer events or without any time.

    ``frozen`` is False while the job lives: its numbers are provisional, and ``current_phase`` is
    what it does. ``progress_ns`` is when training last advanced, ``time_to_first_advance_ns`` how
    long it took to do so at first; None if it never did. ``released_ns`` is the sum of those of
    ``published``. ``lanes`` has the spans once more, packed; of these and of ``progress`` there is
    one an attempt.
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
    excluded_ns: int
    held_ns: int
    effective_ns: int
    ett_pct: float | None
    ett_pct_held: float | None
    ett_pct_paper: float | None
    tts_ns: int
    time_to_first_advance_ns: int | None
    ttr: tuple[Recovery, ...]
    nof: int
    nof_by_cause: Mapping[str, int]
    nof_by_layer: Mapping[str, int]
    phases_ns: Mapping[str, int]
    components_ns: Mapping[str, int]
    held_components_ns: Mapping[str, int]
    levels_ns: Mapping[str, int]
    positions_ns: Mapping[str, Mapping[str, int]]
    windows: Mapping[str, Window]
    current_phase: str | None
    progress_ns: int | None
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
    released_ns: int
    spans: Lazy[Span]
    lanes: Lazy[Lane] = field(compare=False)
    progress: Lazy[Progress]

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON-able data, the keys of ``report --json``.

        The timeline, which is spans, lanes and progress, is no part of them.
        """
        return {n: _plain(getattr(self, n)) for n in _names(JobMetric) if n not in _TIMELINE}


_TIMELINE = ("spans", "lanes", "progress")


class Lazy(Sequence[_T]):
    """What the packed timelines hold, read when somebody asks for it."""

    def __init__(self, sources: Sequence[Callable[[], Iterable[_T]]]) -> None:
        self._sources = sources

    @cached_property
    def _all(self) -> tuple[_T, ...]:
        return tuple(iter(self))

    def __iter__(self) -> Iterator[_T]:
        """Read them one after the other, and keep none: there may be a million."""
        return chain.from_iterable(source() for source in self._sources)

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...

    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lazy) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self._all)


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
