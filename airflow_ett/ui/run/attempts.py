"""The attempts table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import AttemptId, JobState
from airflow_ett.metric.format import duration
from airflow_ett.metric.hosts import listed
from airflow_ett.ui.run.evidence import Evidence, evidence_of
from airflow_ett.ui.run.head import Chip
from airflow_ett.ui.words import cause, is_wish

ROWS = 12
_REASONS = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt.

    ``ttr_ns`` is the recovery that it ended, or is in the middle of; ``unrecovered_ns`` what has
    followed its own end where no attempt came after it. ``replay_ns`` it spent on data that the job
    had trained on before. ``waits`` says why it waited in the queue and for how long, ``skew`` how
    far its clock is off; '' where nobody told, or nothing proves that.
    """

    number: int
    layer: str
    numbers: tuple[str, ...]
    begin_ns: int
    length_ns: int
    ended: Chip | None
    evidence: Evidence
    waits: str
    ttr_ns: int | None
    unrecovered_ns: int | None
    cursor_from: int | None
    cursor_to: int | None
    replay_ns: int
    hosts: str
    skew: str


@dataclass(frozen=True, slots=True)
class Attempts:
    """``shown`` are the newest of ``total``, oldest first."""

    shown: tuple[Line, ...]
    total: int


def attempts(result: Mapping[str, Any], *, show_all: bool) -> Attempts:
    """Return the attempts table; ``show_all`` leaves none out."""
    rows = result["attempts"]
    first = 0 if show_all or len(rows) <= ROWS else len(rows) - ROWS
    recoveries = {tuple(one["attempt"]): one["ns"] for one in result["ttr"]}
    return Attempts(tuple(_lines(result, rows, recoveries, first)), len(rows))


def number_of(result: Mapping[str, Any]) -> dict[tuple[int, ...], int]:
    """Return the attempts' places in the job, from 1, by what a log calls them."""
    return {_id(row): place for place, row in enumerate(result["attempts"], 1)}


def _lines(
    result: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    recoveries: Mapping[tuple[int, ...], int],
    first: int,
) -> Iterator[Line]:
    for place, row in enumerate(rows[first:], first):
        is_last = place == len(rows) - 1
        yield Line(
            number=place + 1,
            layer=row["layer"],
            numbers=_numbers(row),
            begin_ns=row["begin_ns"],
            length_ns=row["end_ns"] - row["begin_ns"],
            ended=_ended(result, row, is_last=is_last),
            evidence=evidence_of(row["evidence"]),
            waits=_waits(row["waits"]),
            ttr_ns=recoveries.get(_id(rows[place - 1])) if place else None,
            unrecovered_ns=recoveries.get(_id(row)) if is_last else None,
            cursor_from=row["cursor_from"],
            cursor_to=row["cursor_to"],
            replay_ns=row["phases_ns"].get("replay", 0),
            hosts=listed(row["hosts"]) or row["host"] or "",
            skew=_skew(row["clock_skew"]),
        )


def _waits(told: Mapping[str, int]) -> str:
    """The scheduler's reasons why it waited, the longest first, in words."""
    longest = sorted(told.items(), key=lambda one: -one[1])
    return ", ".join(f"{reason} {duration(ns)}" for reason, ns in longest[:_REASONS])


def _id(row: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in AttemptId._fields)


def _numbers(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What each layer counts, on two lines."""
    again = "" if row["try"] is None else f", try {row['try']}"
    return (
        f"submission {row['submission']}, requeue {row['scheduler_restart']},",
        f"elastic {row['elastic_restart']}{again}",
    )


def _ended(result: Mapping[str, Any], row: Mapping[str, Any], *, is_last: bool) -> Chip | None:
    if row["cause"]:
        return "none" if is_wish(row["cause"]) else "bad", cause(row["cause"])
    if is_last and not result["frozen"]:
        return "run", "Running"
    return ("ok", "Success") if is_last and result["state"] == JobState.SUCCEEDED else None


def _skew(skew: Mapping[str, Any] | None) -> str:
    if not skew or not skew["ns"]:
        return ""
    way = "ahead" if skew["ns"] > 0 else "behind"
    return f"clock {duration(abs(skew['ns']))} {way}"
