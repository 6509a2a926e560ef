"""The report for people: a table of jobs, then where each job's wall clock went, as plain text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_ett.metric.format import (
    UNKNOWN,
    accelerator_hours,
    duration,
    instant,
    percent,
    shares,
)
from airflow_ett.metric.hosts import listed
from airflow_ett.metric.outcomes import summed_up
from airflow_ett.metric.phases import COMPONENTS, Components

_HEADS = (
    *("Dag", "Task", "Run", "State", "Data"),
    *("Wall clock", "ETT%", "Held", "TTS", "TTR", "Failures"),
)
_MOST_COLUMNS = 6
# Control characters, line and paragraph separators, and what turns the direction of writing.
_UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def render(results: Sequence[Mapping[str, Any]], components: Components = COMPONENTS) -> str:
    """Return the text for jobs given as ``JobMetric.as_dict()`` data."""
    jobs = table([_HEADS, *(_job(result) for result in results)], texts=5)
    return "\n\n".join([jobs, *(_phases(result, components) for result in results)])


def _job(result: Mapping[str, Any]) -> tuple[str, ...]:
    ttr = sum(recovery["ns"] for recovery in result["ttr"]) if result["ttr"] else None
    return (
        result["dag_id"] or f"job {result['job']}",
        _task(result),
        result["run_id"],
        _state(result),
        result["quality"].replace("_", " "),
        duration(result["wall_ns"]),
        percent(result["ett_pct"]),
        percent(result["ett_pct_held"]),
        duration(result["tts_ns"]),
        duration(ttr),
        str(result["nof"]),
    )


def _state(result: Mapping[str, Any]) -> str:
    revision = result.get("revision", 1)
    notes = ["provisional"] * (not result["frozen"]) + [f"revision {revision}"] * (revision > 1)
    return ", ".join([result["state"], *notes])


def _phases(result: Mapping[str, Any], components: Components) -> str:
    """The lifecycle timings: components and their phases by attempt, with the job's shares."""
    columns = _columns(result)
    hosts = [on for _, _, on in columns]
    names = sorted(result["phases_ns"], key=lambda phase: _order(phase, components))
    share = dict(zip(names, shares([result["phases_ns"][n] for n in names]), strict=True))
    rows = [("Phase", *(head for head, _, _ in columns), "Job", "Share", "Owner")]
    if any(hosts):
        rows.append(("Hosts", *(on or UNKNOWN for on in hosts), "", "", ""))
    component = ""
    for name in names:
        if components.of(name) != component:
            component = components.of(name)
            rows.append((component, *("" for _ in columns), "", "", components[component].owner))
        parts = (_cell(phases.get(name)) for _, phases, _ in columns)
        rows.append((f"  {name}", *parts, duration(result["phases_ns"][name]), share[name], ""))
    sums = (duration(sum(phases.values())) for _, phases, _ in columns)
    rows.append(("Wall clock", *sums, duration(result["wall_ns"]), percent(100.0), ""))
    head = (escaped(line) for line in (_title(result), *_remarks(result)))
    tail = (escaped(line) for line in (*_levers(result), *_published(result)))
    return "\n".join([*head, table(rows, texts=1), *tail])


def _title(result: Mapping[str, Any]) -> str:
    if result["dag_id"]:
        return f"{result['dag_id']}.{_task(result)}, run {result['run_id']}"
    return f"job {result['job']}"


def _remarks(result: Mapping[str, Any]) -> Iterator[str]:
    """What else there is to know: why the data is doubted, what is left out, what goes on now."""
    if result["quality_reasons"]:
        yield f"{result['quality'].replace('_', ' ')}: {'; '.join(result['quality_reasons'])}"
    if excluded := result.get("excluded_ns"):
        yield f"left out: {duration(excluded)} of planned maintenance"
    if phase := result.get("current_phase"):
        progress = result["progress_ns"]
        since = "" if progress is None else f" since {instant(progress)}"
        yield f"now: {phase}; no progress{since}; at risk: {duration(result['at_risk_ns'])}"


def _columns(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, int], str]]:
    """A column per attempt: its head, its phases, its hosts.

    Of many attempts there are the first, the last four, and the others as one.
    """
    attempts = [
        (f"{number} {attempt['layer']}", attempt["phases_ns"], listed(attempt["hosts"], most=2))
        for number, attempt in enumerate(result["attempts"], 1)
    ]
    if len(attempts) <= _MOST_COLUMNS:
        return attempts
    others: Counter[str] = Counter()
    for _, phases, _ in attempts[1:-4]:
        others.update(phases)
    return [attempts[0], (f"{len(attempts) - 5} others", others, ""), *attempts[-4:]]


def _levers(result: Mapping[str, Any]) -> Iterator[str]:
    """What became of the levers, a line per attempt; of many attempts those with a column."""
    attempts = list(enumerate(result["attempts"], 1))
    if len(attempts) > _MOST_COLUMNS:
        attempts = [attempts[0], *attempts[-4:]]
    for number, attempt in attempts:
        if text := summed_up(attempt):
            yield f"levers of {number} {attempt['layer']}: {text}"


def _published(result: Mapping[str, Any]) -> Iterator[str]:
    """What became of the model, and what it would have held to publish it in the trainer."""
    for row in result["published"]:
        name = f"{row['name']} " if row["name"] else ""
        took = "was there" if row["existed"] else f"took {duration(row['released_ns'])}"
        yield f"published: {name}{row['version'] or UNKNOWN}, {instant(row['end'])}, {took}"
    if result["published"] and (count := result["accelerators"]):
        released = accelerator_hours(result["released_ns"] * count)
        held = accelerator_hours(result["held_components_ns"].get("shutdown", 0) * count)
        yield f"accelerator-hours: {released} released by publishing apart, {held} held in shutdown"


def _order(phase: str, components: Components) -> tuple[int, int, str]:
    component = components.of(phase)
    known = components[component].phases
    place = known.index(phase) if phase in known else len(known)
    return list(components).index(component), place, phase


def _task(result: Mapping[str, Any]) -> str:
    index = f"[{result['map_index']}]" if result["map_index"] >= 0 else ""
    generation = f" g{result['generation']}" if result["generation"] > 1 else ""
    return f"{result['task_id']}{index}{generation}"


def _cell(ns: int | None) -> str:
    return duration(ns) if ns else UNKNOWN


def table(rows: Sequence[Sequence[str]], *, texts: int) -> str:
    """Return rows as text with aligned columns.

    The first ``texts`` ones stand left, numbers right, an owner at the end left. Cells are escaped.
    """
    rows = [[escaped(cell) for cell in row] for row in rows]
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


def escaped(text: str) -> str:
    """Return ``text`` on one line, with what would steer a terminal as ``\\n`` or ``\\x1b``."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
