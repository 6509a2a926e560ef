"""The report for people: a table of jobs, then where each job's wall clock went, as plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_ett.metric import COMPONENTS, component_of
from airflow_ett.metric.format import UNKNOWN, duration, percent, shares

_HEADS = (
    *("Dag", "Task", "Run", "State", "Data"),
    *("Wall clock", "ETT%", "Held", "TTS", "TTR", "Failures"),
)
_MOST_COLUMNS = 6


def render(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the text for jobs given as ``JobMetric.as_dict()`` data."""
    jobs = _table([_HEADS, *(_job(result) for result in results)], texts=5)
    return "\n\n".join([jobs, *(_phases(result) for result in results)])


def _job(result: Mapping[str, Any]) -> tuple[str, ...]:
    ttr = sum(recovery["ns"] for recovery in result["ttr"]) if result["ttr"] else None
    return (
        result["dag_id"],
        _task(result),
        result["run_id"],
        result["state"] + ("" if result["frozen"] else ", provisional"),
        result["quality"].replace("_", " "),
        duration(result["wall_ns"]),
        percent(result["ett_pct"]),
        percent(result["ett_pct_held"]),
        duration(result["tts_ns"]),
        duration(ttr),
        str(result["nof"]),
    )


def _phases(result: Mapping[str, Any]) -> str:
    """The lifecycle timings: components and their phases by attempt, with the job's shares."""
    columns = _columns(result)
    names = sorted(result["phases_ns"], key=_order)
    share = dict(zip(names, shares([result["phases_ns"][n] for n in names]), strict=True))
    rows = [("Phase", *(head for head, _ in columns), "Job", "Share", "Owner")]
    component = ""
    for name in names:
        if component_of(name) != component:
            component = component_of(name)
            rows.append((component, *("" for _ in columns), "", "", COMPONENTS[component].owner))
        parts = (_cell(phases.get(name)) for _, phases in columns)
        rows.append((f"  {name}", *parts, duration(result["phases_ns"][name]), share[name], ""))
    sums = (duration(sum(phases.values())) for _, phases in columns)
    rows.append(("Wall clock", *sums, duration(result["wall_ns"]), percent(100.0), ""))
    title = f"{result['dag_id']}.{_task(result)}, run {result['run_id']}"
    return f"{title}\n{_table(rows, texts=1)}"


def _columns(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, int]]]:
    """A column per attempt; of many attempts the first, the last four, and the others as one."""
    attempts = [
        (f"{number} {attempt['layer']}", attempt["phases_ns"])
        for number, attempt in enumerate(result["attempts"], 1)
    ]
    if len(attempts) <= _MOST_COLUMNS:
        return attempts
    others: Counter[str] = Counter()
    for _, phases in attempts[1:-4]:
        others.update(phases)
    return [attempts[0], (f"{len(attempts) - 5} others", others), *attempts[-4:]]


def _order(phase: str) -> tuple[int, int, str]:
    component = component_of(phase)
    known = COMPONENTS[component].phases
    place = known.index(phase) if phase in known else len(known)
    return list(COMPONENTS).index(component), place, phase


def _task(result: Mapping[str, Any]) -> str:
    index = f"[{result['map_index']}]" if result["map_index"] >= 0 else ""
    generation = f" g{result['generation']}" if result["generation"] > 1 else ""
    return f"{result['task_id']}{index}{generation}"


def _cell(ns: int | None) -> str:
    return duration(ns) if ns else UNKNOWN


def _table(rows: Sequence[Sequence[str]], *, texts: int) -> str:
    """Align columns: the first ``texts`` ones left, numbers right, an owner at the end left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {*range(texts), *(i for i, head in enumerate(rows[0]) if head == "Owner")}
    lines = (
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
