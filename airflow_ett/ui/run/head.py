"""The job's title, chips, facts and links. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from airflow_ett.api.places import is_web
from airflow_ett.links.addresses import TaskAt
from airflow_ett.metric.format import duration
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.run import choice
from airflow_ett.ui.run.progress import Standstill
from airflow_ett.ui.words import quality, state_chip

Chip = tuple[str, str]
"""Kind and words."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A labelled text; ``code``: something to copy."""

    label: str
    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """``top``: another page of Airflow. ``file``: what it is saved as, '' for a page."""

    text: str
    href: str
    top: bool = False
    file: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """``generations`` lead to the same task's other jobs in this run."""

    title: str
    chips: tuple[Chip, ...]
    facts: tuple[Fact, ...]
    links: tuple[Link, ...]
    generations: tuple[Link, ...]


def head(
    result: Mapping[str, Any],
    clock: Clock,
    *,
    stands: Standstill | None,
    silent_ns: int | None,
    others: Sequence[choice.Row],
) -> Head:
    """Return what stands above the numbers."""
    return Head(
        title=choice.label(result, generation=False),
        chips=tuple(_chips(result, stands, silent_ns)),
        facts=tuple(_facts(result, clock)),
        links=tuple(_links(result)),
        generations=tuple(_generation(result, row, clock) for row in others),
    )


def task_page(result: Mapping[str, Any]) -> str:
    """Return the address of the task instance in Airflow, relative to this page's own."""
    return f"../../{TaskAt(**{name: result[name] for name in TaskAt.__slots__}).page}"


def _chips(
    result: Mapping[str, Any], stands: Standstill | None, silent_ns: int | None
) -> Iterator[Chip]:
    yield state_chip(result["state"])
    if not result["frozen"]:
        yield "none", "Provisional"
    if stands is not None:
        yield "warn", f"No progress for {duration(stands.for_ns)}"
    elif silent_ns is not None:
        yield "warn", f"Silent for {duration(silent_ns)}"


def _facts(result: Mapping[str, Any], clock: Clock) -> Iterator[Fact]:
    yield Fact("Generation", str(result["generation"]))
    yield Fact("Attempts" if result["frozen"] else "Attempt", str(len(result["attempts"])))
    if result["accelerators"]:
        yield Fact("Accelerators", f"{result['accelerators']:,}")
    if result["scheduler"]:
        yield Fact("Scheduler", result["scheduler"])
    handle, log = result["handle"], _newest_log(result)
    if handle:
        yield Fact("App", handle, code=True)
    yield Fact("Submitted", clock.instant(result["begin_ns"]))
    if not result["frozen"]:
        yield Fact("Last sign of life", clock.instant(result["end_ns"]))
    if log and not is_web(log):
        yield Fact("Log of rank 0", log, code=True)
    yield Fact("Data", quality(result["quality"]).lower())
    if result["revision"] > 1:
        yield Fact("Revision", f"{result['revision']}, {clock.instant(result['revised_ns'])}")


def _links(result: Mapping[str, Any]) -> Iterator[Link]:
    page, job = task_page(result), quote(result["job"], safe="")
    newest = result["attempts"][-1]["try"] if result["attempts"] else None
    yield Link("Airflow task", f"{page}/details", top=True)
    # The task's own page is the tab of its logs.
    yield Link("Task log", f"{page}?try_number={newest}" if newest else page, top=True)
    for text, place in (("Scheduler", result["handle"]), ("Log of rank 0", _newest_log(result))):
        if is_web(place):
            yield Link(text, str(place), top=True)
    yield Link("Phases as CSV", f"../api/v1/jobs/{job}/phases?format=csv", file=f"phases-{job}.csv")
    yield Link("Job as JSON", f"../api/v1/jobs/{job}", file=f"job-{job}.json")


def _generation(result: Mapping[str, Any], row: choice.Row, clock: Clock) -> Link:
    names = ("run_id", "task_id", "map_index")
    href = choice.address(**{name: result[name] for name in names}, job=row["job"])
    began = clock.brief(row["begin_ns"], result["begin_ns"])
    return Link(f"Generation {row['generation']}, {began}", href)


def _newest_log(result: Mapping[str, Any]) -> str | None:
    logs = [attempt["log"] for attempt in result["attempts"] if attempt["log"]]
    return logs[-1] if logs else None
