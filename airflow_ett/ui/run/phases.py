"""Phases by attempt: where each attempt's time went, by component and phase. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import AttemptId
from airflow_ett.metric import COMPONENTS, Components
from airflow_ett.metric.format import UNKNOWN, apportion, duration, percent
from airflow_ett.store.queries import PhaseRow
from airflow_ett.ui.charts import phase_token

_MOST_COLUMNS = 6
_LAST = 4
_SHARES = 1000
_NAME = 250
"""Characters of a phase's name in the store."""
_STRAGGLED_NS = 10**9

Booked = tuple[str, str]
"""Component and phase."""


@dataclass(frozen=True, slots=True)
class Cell:
    """``ns`` 0: the phase was not there. ``slowest`` tells of a rank that took notably longer."""

    ns: int
    slowest: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A phase of a component; ``token`` names its colour.

    ``name`` None is no phase: it moves what phases of this component count in another one, because
    they ran before the training loop and in it.
    """

    name: str | None
    token: str
    cells: tuple[Cell, ...]
    job_ns: int
    share: str


@dataclass(frozen=True, slots=True)
class Group:
    """A component; its shares and the other groups' add up to 100.0%, its lines' to its own."""

    component: str
    owner: str
    cells: tuple[int, ...]
    job_ns: int
    share: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """``columns`` are the attempts' heads; ``sums`` the columns' sums."""

    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    sums: tuple[int, ...]
    wall_ns: int


def phase_table(
    result: Mapping[str, Any], rows: Sequence[PhaseRow], components: Components = COMPONENTS
) -> PhaseTable:
    """Return the table of a job; ``rows`` tell which component each attempt's phases belong to.

    A component's line in the column of the job is the metric's own, to the nanosecond.
    """
    told = {(tuple(row.attempt), row.phase): row.component for row in rows}
    columns = list(_columns(result["attempts"]))
    booked = [_booked(attempts, told, components) for _, attempts in columns]
    slowest = [attempts[0]["slowest"] if len(attempts) == 1 else {} for _, attempts in columns]
    totals = result["components_ns"]
    shown = [name for name in components if totals.get(name, 0) or name in _ALWAYS]
    parts = [totals.get(name, 0) for name in shown]
    units: list[int | None] = [None] * len(parts)
    if sum(parts) > 0:
        units = [*apportion(parts, _SHARES)]
    whole = sum(booked, Counter[Booked]())
    return PhaseTable(
        columns=tuple(head for head, _ in columns),
        groups=tuple(
            Group(
                component=name,
                owner=components[name].owner,
                cells=tuple(_of(name, column) for column in booked),
                job_ns=total,
                share=_share(share),
                lines=tuple(_lines(name, total, share, whole, booked, slowest, components)),
            )
            for name, total, share in zip(shown, parts, units, strict=True)
        ),
        sums=tuple(column.total() for column in booked),
        wall_ns=result["wall_ns"],
    )


_ALWAYS = ("effective", "unattributed")
"""Components that are never left out, and that are one phase each."""


def _columns(
    attempts: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """A column per attempt; of many attempts the first, the last four, and the others as one."""
    numbered = [(f"Attempt {number}", [one]) for number, one in enumerate(attempts, 1)]
    if len(numbered) <= _MOST_COLUMNS:
        yield from numbered
        return
    yield numbered[0]
    yield f"{len(numbered) - 1 - _LAST} others", attempts[1:-_LAST]
    yield from numbered[-_LAST:]


def _booked(
    attempts: Sequence[Mapping[str, Any]],
    told: Mapping[tuple[tuple[int, ...], str], str],
    components: Components,
) -> Counter[Booked]:
    found: Counter[Booked] = Counter()
    for attempt in attempts:
        number = tuple(attempt[name] for name in AttemptId._fields)
        for phase, ns in attempt["phases_ns"].items():
            component = told.get((number, phase[:_NAME])) or components.of(phase)
            found[component, phase] += ns
    return found


def _of(component: str, column: Counter[Booked]) -> int:
    return sum(ns for (name, _), ns in column.items() if name == component)


def _lines(
    component: str,
    total: int,
    share: int | None,
    whole: Counter[Booked],
    booked: Sequence[Counter[Booked]],
    slowest: Sequence[Mapping[str, Any]],
    components: Components,
) -> Iterator[Line]:
    found = {phase: ns for (name, phase), ns in whole.items() if name == component and ns}
    moved = total - sum(found.values())
    if component in _ALWAYS and not moved:
        return
    names = sorted(found, key=lambda phase: _place(phase, component, components))
    if moved or share is None:
        whole_ns = whole.total()
        texts = [percent(100 * found[n] / whole_ns) if whole_ns else UNKNOWN for n in names]
    else:
        texts = [_share(units) for units in apportion([found[n] for n in names], share)]
    for name, text in zip(names, texts, strict=True):
        cells = tuple(
            Cell(column[component, name], _slowest(ranks.get(name), column[component, name]))
            for column, ranks in zip(booked, slowest, strict=True)
        )
        yield Line(name, phase_token(name, component), cells, found[name], text)
    if moved:
        yield Line(None, "", tuple(Cell(0) for _ in booked), moved, UNKNOWN)


def _place(phase: str, component: str, components: Components) -> tuple[int, str]:
    known = components[component].phases
    return (known.index(phase) if phase in known else len(known)), phase


def _slowest(told: Mapping[str, Any] | None, ns: int) -> str:
    """Name the slowest rank where it took a second and a tenth longer than the table says."""
    if not told or told["ns"] - ns < max(_STRAGGLED_NS, ns // 10):
        return ""
    place = f" on {told['host']}" if told.get("host") else ""
    return f"rank {told['rank']}{place}: {duration(told['ns'])}"


def _share(units: int | None) -> str:
    return UNKNOWN if units is None else f"{units // 10}.{units % 10}%"
