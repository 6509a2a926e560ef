"""Compilations that a kept cache would have answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from airflow_ett.metric import format as show
from airflow_ett.metric.evidence.lanes import MAIN
from airflow_ett.metric.plans.advice import words
from airflow_ett.metric.plans.advice.gains import Proposal, Saving
from airflow_ett.metric.plans.advice.jobs import Jobs, Name, Piece

ASSUMED = 8
"""What a hit takes of a compilation where none was seen: one part in so many."""

_PHASE = "compile"
_Graph = tuple[int, str | None]
"""A task and the compiler's name for what it compiles there."""


class _Cold(NamedTuple):
    """A compilation for which a cache had not all."""

    name: Name
    graph: _Graph
    duration_ns: int


class _Compilations:
    """Those that the training waited for and whose caches told something.

    ``took_ns`` sums them by attempt; ``hit_ns`` is what one of a graph took, at the median, for
    which the caches had all; ``first`` the first attempt that compiled a graph.
    """

    def __init__(self, jobs: Jobs) -> None:
        self.took_ns: Counter[Name] = Counter()
        self.cold: list[_Cold] = []
        self.first: dict[_Graph, Name] = {}
        hits: dict[_Graph, list[int]] = {}
        for task, several in enumerate(jobs.by_task()):
            for job in several:
                for row in job["compiles"]:
                    if row["lane"] != MAIN or not (row["hits"] or row["misses"]):
                        continue
                    name, graph = (job["job"], *row["attempt"]), (task, row["id"])
                    self.took_ns[name] += row["duration_ns"]
                    self.first.setdefault(graph, name)
                    if row["misses"]:
                        self.cold.append(_Cold(name, graph, row["duration_ns"]))
                    else:
                        hits.setdefault(graph, []).append(row["duration_ns"])
        self.hit_ns = {graph: round(median(several)) for graph, several in hits.items()}

    @property
    def warm(self) -> set[Name]:
        """The attempts for which the caches had all."""
        return self.took_ns.keys() - {one.name for one in self.cold}

    def savable_ns(self) -> Counter[Name]:
        """Return what a kept cache would have saved of the compilations of an attempt."""
        found = Counter[Name]()
        for one in self.cold:
            if self.first[one.graph] != one.name:
                hit = self.hit_ns.get(one.graph, one.duration_ns // ASSUMED)
                found[one.name] += max(0, one.duration_ns - hit)
        return found


def compile_cache(jobs: Jobs) -> Proposal | None:
    """Return what is saved where no attempt but a graph's first compiles it anew.

    A compilation with a miss takes as long as the same graph's hits at the median, in all jobs of
    the task; an eighth of its time where none was seen. On other lanes than the main one nothing
    waits for it.
    """
    seen = _Compilations(jobs)
    savable = seen.savable_ns()
    if not savable:
        return None

    def cuts(piece: Piece) -> Mapping[str, int]:
        lasted = piece.phases.get(_PHASE, 0)
        if piece.name not in savable or not lasted:
            return {}
        # Several nodes' compilations run at the same time.
        return {_PHASE: lasted * savable[piece.name] // max(lasted, seen.took_ns[piece.name])}

    def evidence(jobs: Jobs, saving: Saving) -> str:
        warm = seen.warm
        told = _told_cold(jobs, saving, warm)
        known = [ns for p in jobs.pieces if p.name in warm and (ns := p.phases.get(_PHASE, 0))]
        if known and all(one.graph in seen.hit_ns for one in seen.cold):
            return f"{told}; attempts that hit the cache took {words.typical(known)}."
        if seen.hit_ns:
            return f"{told}. What the same graph took from the cache would remain, or an eighth."
        return f"{told}. No hit was seen: an eighth of it is assumed to remain."

    return Proposal("Share the compile cache between attempts", (_PHASE,), cuts, evidence)


def _told_cold(jobs: Jobs, saving: Saving, warm: set[Name]) -> str:
    """Say in how many runs something compiled cold, and how long that took."""
    ids = {piece.job["job"] for piece, _ in saving.shown}
    each = words.typical(piece.phases[_PHASE] for piece, _ in saving.shown)
    runs = words.of_runs(len(saving.runs), jobs)
    if ids.isdisjoint(name[0] for name in warm):
        return f"{runs} compiled cold in every attempt, {each} each at the median"
    attempts = show.counted(len(saving.shown), "attempt")
    return f"{attempts} in {runs} compiled cold, {each} each at the median"
