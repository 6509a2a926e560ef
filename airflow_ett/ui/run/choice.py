"""Which of a run's jobs the page is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

Row = Mapping[str, Any]
"""A job as the store lists it, without its result."""


@dataclass(frozen=True, slots=True)
class Choice:
    """``jobs`` are the newest generations by task and map index.

    ``job`` is the id of the one to open, None where the reader chooses; ``others`` are its other
    generations, newest first.
    """

    jobs: tuple[Row, ...]
    job: str | None
    others: tuple[Row, ...]


def map_index_of(text: str | None) -> int | None:
    """Return the map index of an address, None where it asks for none.

    Airflow leaves ``{MAP_INDEX}`` as it is where a task is not mapped: that is -1.
    """
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return -1


def choose(rows: Iterable[Row], *, map_index: int | None, job: str | None) -> Choice:
    """Return what to show of a run's jobs: ``job``, or the only one, or all of them."""
    instances: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if map_index is None or row["map_index"] == map_index:
            instances.setdefault((row["task_id"], row["map_index"]), []).append(row)
    generations = [
        sorted(found, key=lambda row: -row["generation"]) for _, found in sorted(instances.items())
    ]
    newest = tuple(found[0] for found in generations)
    opened = _opened(generations, job)
    if opened is None:
        return Choice(newest, None, ())
    chosen, found = opened
    return Choice(newest, chosen["job"], tuple(row for row in found if row is not chosen))


def address(**parts: str | int | Sequence[str] | None) -> str:
    """Return a query with these parameters, from ``?`` on: the same page, another view."""
    told = {name: value for name, value in parts.items() if value not in (None, "", ())}
    return f"?{urlencode(told, doseq=True)}"


def label(row: Row, *, generation: bool = True) -> str:
    """Return how people call a job within its run: ``train[3]``, ``train g2``."""
    index = f"[{row['map_index']}]" if row["map_index"] >= 0 else ""
    again = f" g{row['generation']}" if generation and row["generation"] > 1 else ""
    return f"{row['task_id']}{index}{again}"


def _opened(generations: list[list[Row]], job: str | None) -> tuple[Row, list[Row]] | None:
    for found in generations:
        for row in found:
            if row["job"] == job:
                return row, found
    return (generations[0][0], generations[0]) if len(generations) == 1 else None
