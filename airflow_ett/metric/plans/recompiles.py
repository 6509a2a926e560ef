"""What of a run's compilations was compiling anew: for which changes, how long, and what to write.

A graph that doesn't fit any more is compiled again, and the training waits. Torch says why in the
``reason`` of its ``compile`` events; :mod:`airflow_ett.metric.plans.guards` reads it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from airflow_ett.metric.evidence.lanes import MAIN
from airflow_ett.metric.plans.guards import Change, read
from airflow_ett.metric.plans.sets import Result

LIMIT = 8
"""How many graphs torch makes of one piece of code before it runs what fits none of them as it is,
uncompiled: ``torch._dynamo.config.recompile_limit``, unless that was changed."""

UNTOLD = Change("untold", "torch does not say why", avoidable=False)
"""Where a piece of code has another graph already: an older torch tells no reasons."""

VARIABLE = "TORCH_COMPILE_DYNAMIC_SOURCES"

_COUNT = re.compile(r"\d+/(\d{1,9})(?!\d)")
_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Group:
    """Recompilations for the same change, which ``kind`` and ``what`` name.

    ``graphs`` were compiled; the training waited for them for ``lost_ns``, while ``beside_ns`` went
    by in other lanes. ``values`` are those that changed, as far as torch tells, ``add`` the lines
    that help, the best first. ``example`` is what torch said of the first.
    """

    kind: str
    what: str
    graphs: int
    lost_ns: int
    beside_ns: int
    values: tuple[str, ...]
    add: tuple[str, ...]
    avoidable: bool
    example: str


@dataclass(frozen=True, slots=True)
class Recompiles:
    """The compilations of some jobs.

    ``graphs`` were compiled in ``compile_ns``, all lanes together, of which ``anew`` again, in
    ``anew_ns``: the sum of the ``groups``, those with most lost time first. ``dynamic_sources`` is
    what to set ``TORCH_COMPILE_DYNAMIC_SOURCES`` to against all of it that this helps against.
    ``at_limit`` counts the pieces of code of which an attempt has made as many graphs as torch
    makes.
    """

    jobs: int
    graphs: int
    compile_ns: int
    anew: int
    anew_ns: int
    groups: tuple[Group, ...]
    dynamic_sources: str
    at_limit: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self)


class _Graph(NamedTuple):
    """A graph of an attempt; its forward and its backward part are compiled each by itself."""

    job: str
    attempt: tuple[int, ...]
    id: str


def recompiles(results: Iterable[Result]) -> Recompiles:
    """Return what these jobs compiled anew, from their ``compiles``."""
    jobs = list(results)
    first = _Gathered()
    groups: dict[tuple[str, str], _Gathered] = {}
    sources: dict[str, None] = {}
    for job in jobs:
        for row in job["compiles"]:
            change = _change(row)
            if change is None:
                first.add(job, row)
                continue
            groups.setdefault((change.kind, change.what), _Gathered()).add(job, row, change)
            sources |= dict.fromkeys([change.source] if change.source else ())
    found = [gathered.group() for gathered in groups.values()]
    found.sort(key=lambda group: (-group.lost_ns, -group.beside_ns, group.what))
    anew = {graph for gathered in groups.values() for graph in gathered.graphs}
    anew_ns = sum(group.lost_ns + group.beside_ns for group in found)
    return Recompiles(
        jobs=len(jobs),
        graphs=len(first.graphs | anew),
        compile_ns=sum(first.took()) + anew_ns,
        anew=len(anew),
        anew_ns=anew_ns,
        groups=tuple(found),
        dynamic_sources=",".join(sources),
        at_limit=sum(map(_is_last, anew)),
    )


class _Gathered:
    """Compilations that are one in the report.

    What several nodes compile at the same time is lost once.
    """

    def __init__(self) -> None:
        self.graphs: set[_Graph] = set()
        self._changes: list[tuple[Change, str]] = []
        self._spans: dict[tuple[str, tuple[int, ...], str], list[_Span]] = defaultdict(list)

    def add(self, job: Result, row: Mapping[str, Any], change: Change | None = None) -> None:
        """Add a row of a job's ``compiles``."""
        attempt, begin = tuple(row["attempt"]), row["begin_ns"]
        name = (row["id"] or f"at {begin}").removesuffix(" backward")
        self.graphs.add(_Graph(job["job"], attempt, name))
        self._spans[job["job"], attempt, row["lane"]].append((begin, begin + row["duration_ns"]))
        if change:
            self._changes.append((change, row["reason"] or ""))

    def took(self) -> tuple[int, int]:
        """Return for how long the training waited, and what went by in other lanes."""
        ns = {True: 0, False: 0}
        for (_, _, lane), spans in self._spans.items():
            ns[lane == MAIN] += _covered(spans)
        return ns[True], ns[False]

    def group(self) -> Group:
        """Return them as changes of one kind."""
        change, example = self._changes[0]
        lost_ns, beside_ns = self.took()
        values = sorted({value for told, _ in self._changes for value in told.values}, key=_rank)
        most = values[-1] if values else ""
        return Group(
            kind=change.kind,
            what=change.what,
            graphs=len(self.graphs),
            lost_ns=lost_ns,
            beside_ns=beside_ns,
            values=tuple(values),
            add=tuple(line.replace("{most}", most) for line in change.add),
            avoidable=change.avoidable,
            example=example,
        )


def _change(row: Mapping[str, Any]) -> Change | None:
    """Return why it was compiled anew, None where it was for the first time."""
    if row["reason"]:
        return read(row["reason"])
    count = _COUNT.match(row["id"] or "")
    return UNTOLD if count and int(count[1]) else None


def _covered(spans: list[_Span]) -> int:
    covered = reached = 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def _rank(value: str) -> tuple[int, str]:
    return (int(value), "") if value.isdecimal() else (-1, value)


def _is_last(graph: _Graph) -> bool:
    count = _COUNT.fullmatch(graph.id)
    return count is not None and int(count[1]) == LIMIT - 1
