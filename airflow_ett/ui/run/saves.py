"""The checkpoints, compilations and published versions of a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from airflow_ett.api.places import is_web
from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.format import accelerator_hours, counted, duration
from airflow_ett.metric.outcomes import why_cold
from airflow_ett.metric.plans.interval import observe, plan
from airflow_ett.ui.run.attempts import number_of
from airflow_ett.ui.run.head import Chip
from airflow_ett.ui.words import size

CHECKPOINTS = 7
COMPILES = 12
VERSIONS = 7
_SECOND_NS = 10**9
_MAIN = "main"
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One save, as the table shows it."""

    cursor: int | None
    uri: str
    committed_ns: int | None
    blocking_ns: int | None
    upload_ns: int | None
    size: str
    state: Chip


@dataclass(frozen=True, slots=True)
class Compile:
    """One compilation; ``beside`` where it did not stop the training.

    ``reason`` is that of a recompile, or why the compile cache did not spare a cold one.
    """

    attempt: int | None
    graph: str
    ns: int
    result: Chip | None
    reason: str
    beside: bool


@dataclass(frozen=True, slots=True)
class Version:
    """A published version.

    ``existed``: the publisher found it there; ``released`` are accelerator-nanoseconds. A browser
    may be sent to ``address`` where it is a web page's (``web``).
    """

    version: str
    name: str
    cursor: int | None
    end_ns: int | None
    took_ns: int | None
    existed: bool
    size: str
    released: int
    address: str
    web: bool


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """``shown`` of ``total`` rows, under what a line sums up."""

    shown: tuple[Row, ...]
    total: int
    hint: str


def checkpoints(result: Mapping[str, Any], *, show_all: bool) -> Listing[Checkpoint]:
    """Return the saves, newest first; ``show_all`` leaves none out."""
    rows = result["checkpoints"][::-1]
    shown = rows if show_all else rows[:CHECKPOINTS]
    numbers = number_of(result)
    return Listing(
        tuple(
            Checkpoint(
                cursor=row["cursor"],
                uri=row["uri"],
                committed_ns=row["committed_ns"],
                blocking_ns=row["blocking_ns"],
                upload_ns=row["upload_ns"],
                size=size(row["bytes"]),
                state=_state(result, row, numbers.get(tuple(row["attempt"]))),
            )
            for row in shown
        ),
        len(rows),
        "; ".join([counted(len(rows), "save"), *_interval(result)]),
    )


def compiles(result: Mapping[str, Any], *, show_all: bool) -> Listing[Compile]:
    """Return the compilations, oldest first and the newest ones alone unless ``show_all``."""
    rows = result["compiles"]
    shown = rows if show_all else rows[-COMPILES:]
    numbers = number_of(result)
    cold = {name: why_cold(result["attempts"][place - 1]) for name, place in numbers.items()}
    hits = sum(_result(row) == _HIT for row in rows)
    told = counted(hits, "cache hit") if hits else ""
    total = f"{counted(len(rows), 'event')}, {duration(sum(row['duration_ns'] for row in rows))}"
    return Listing(
        tuple(
            Compile(
                attempt=numbers.get(tuple(row["attempt"])),
                graph=row["id"] or "",
                ns=row["duration_ns"],
                result=_result(row),
                reason=row["reason"] or _no_cache(row, cold.get(tuple(row["attempt"]), "")),
                beside=row["lane"] != _MAIN,
            )
            for row in shown
        ),
        len(rows),
        "; ".join(part for part in (total, told) if part),
    )


def versions(result: Mapping[str, Any], *, show_all: bool) -> Listing[Version]:
    """Return what was published from the job, newest first; ``show_all`` leaves none out."""
    rows = result["published"][::-1]
    return Listing(
        tuple(
            Version(
                version=row["version"] or "",
                name=row["name"] or "",
                cursor=row["cursor"],
                end_ns=row["end"],
                took_ns=_between(row["begin"], row["end"]),
                existed=row["existed"],
                size=size(row["bytes"]),
                released=row["released_ns"] * result["accelerators"],
                address=row["uri"] or "",
                web=is_web(row["uri"]),
            )
            for row in (rows if show_all else rows[:VERSIONS])
        ),
        len(rows),
        _released(result),
    )


def _between(begin_ns: int | None, end_ns: int | None) -> int | None:
    return None if begin_ns is None or end_ns is None else max(0, end_ns - begin_ns)


def _released(result: Mapping[str, Any]) -> str:
    """What publishing in the trainer would have held, beside what the job's end did hold."""
    count = result["accelerators"]
    if not count:
        return ""
    released = accelerator_hours(result["released_ns"] * count)
    held = accelerator_hours(result["held_components_ns"].get("shutdown", 0) * count)
    return f"{released} accelerator-hours released; shutdown held {held}"


_HIT: Chip = ("ok", "Hit")
_COLD: Chip = ("bad", "Cold")


def _result(row: Mapping[str, Any]) -> Chip | None:
    if row["reason"]:
        return "none", "Recompile"
    if row["misses"]:
        return _COLD
    return _HIT if row["hits"] else None


def _no_cache(row: Mapping[str, Any], why: str) -> str:
    return f"Compile cache {why}" if why and _result(row) == _COLD else ""


def _state(result: Mapping[str, Any], row: Mapping[str, Any], number: int | None) -> Chip:
    if row["committed_ns"] is not None:
        return "ok", "Anchor" if row["anchor"] else "Committed"
    over = number is None or number < len(result["attempts"])
    if over or result["attempts"][-1]["cause"]:
        return "warn", "Upload lost"
    return "none", "Not committed"


def _interval(result: Mapping[str, Any]) -> list[str]:
    """What the interval between saves is, and would best be, as far as failures tell."""
    try:
        seen = observe([result])
        best = plan(seen.costs, current_s=seen.current_s).optimal_interval_s
    except ConfigurationError:
        return []
    now = duration(round(seen.current_s * _SECOND_NS))
    if best is None:
        return [f"one each {now} of training"]
    return [f"best interval {duration(round(best * _SECOND_NS))}, now {now}"]
