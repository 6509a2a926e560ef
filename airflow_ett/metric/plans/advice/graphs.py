"""Graphs that were compiled anew though one could have done for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from airflow_ett.metric import format as show
from airflow_ett.metric.evidence.lanes import MAIN
from airflow_ett.metric.plans.advice import words
from airflow_ett.metric.plans.advice.gains import Proposal, Saving
from airflow_ett.metric.plans.advice.jobs import Jobs, Name, Piece
from airflow_ett.metric.plans.guards import read

_PHASE = "compile"


def fewer_graphs(jobs: Jobs) -> Proposal | None:
    """Return what is saved where changes that need no graph of their own don't get one.

    Only what the training waited for counts. Of a compilation that both this and a kept cache would
    have spared, each alone is worth all of it; together they are worth it once.
    """
    took: Counter[Name] = Counter()
    spared: Counter[Name] = Counter()
    changes: Counter[str] = Counter()
    for job in jobs.results:
        for row in job["compiles"]:
            if row["lane"] != MAIN:
                continue
            name = (job["job"], *row["attempt"])
            took[name] += row["duration_ns"]
            change = read(row["reason"]) if row["reason"] else None
            if change and change.avoidable:
                spared[name] += row["duration_ns"]
                changes[change.what] += row["duration_ns"]
    if not spared:
        return None

    def cuts(piece: Piece) -> Mapping[str, int]:
        lasted = piece.phases.get(_PHASE, 0)
        if not lasted or not spared[piece.name]:
            return {}
        # Several nodes' compilations run at the same time.
        return {_PHASE: lasted * spared[piece.name] // max(lasted, took[piece.name])}

    def evidence(jobs: Jobs, saving: Saving) -> str:
        attempts = show.counted(len(saving.shown), "attempt")
        runs = words.of_runs(len(saving.runs), jobs)
        each = words.typical(ns for _, ns in saving.shown)
        most = max(sorted(changes), key=lambda what: changes[what])
        return (
            f"{attempts} in {runs} compiled graphs anew, {each} each at the median, most for this "
            f"change: {most}. The lines to add: airflow-ett recompiles."
        )

    return Proposal("Compile fewer graphs", (_PHASE,), cuts, evidence)
