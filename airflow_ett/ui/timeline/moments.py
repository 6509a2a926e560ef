"""The stretches of a job that a reader wants to see near: its start, its recoveries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from airflow_ett.events import USER_CAUSES, AttemptId
from airflow_ett.metric import Phase

_SECOND = 10**9
_START_MARGIN_NS = 25 * _SECOND
_RECOVERY_MARGIN_NS = 75 * _SECOND


@dataclass(frozen=True, slots=True)
class Moment:
    """A stretch of time, and the cursors that it is about."""

    title: str
    begin_ns: int
    end_ns: int
    low: float
    high: float
    row: int | None = None
    """The attempt that it begins in, from 0; None where it is about all."""


def attempt_of(row: Mapping[str, Any]) -> AttemptId:
    """Return the identity of an attempt of a result."""
    return AttemptId(*(row[name] for name in AttemptId._fields))


def top(result: Mapping[str, Any]) -> int:
    """Return the largest cursor of a job, 0 where it made no step."""
    return max((row["cursor_to"] or 0 for row in result["attempts"]), default=0)


def over_ns(attempt: Mapping[str, Any]) -> int:
    """Return when it was known that an attempt was over: then the wait for the next one began."""
    waited: int = attempt["phases_ns"].get(Phase.RETRY_WAIT, 0)
    return int(attempt["end_ns"]) - waited


def whole_of(result: Mapping[str, Any]) -> Moment:
    """Return the whole job, with room for what is written behind its end."""
    begin, end = result["begin_ns"], result["end_ns"]
    wall = max(_SECOND, end - begin)
    cursors = _all_cursors(result)
    return Moment("Whole job", begin - int(0.007 * wall), end + int(0.045 * wall), *cursors)


def moments(result: Mapping[str, Any]) -> list[Moment]:
    """Return the whole job, its start and its recoveries; all lie within the first of them."""
    whole = whole_of(result)
    begin, first = result["begin_ns"], result["time_to_first_advance_ns"]
    started = result["end_ns"] if first is None else begin + first
    margin = _START_MARGIN_NS
    start = _within(whole, "Start", begin - margin, started + margin, (whole.low, whole.high))
    return [whole, replace(start, row=0), *_recoveries(result, whole)]


def _recoveries(result: Mapping[str, Any], whole: Moment) -> list[Moment]:
    """A recovery lasts from the interruption to the next step on new data."""
    next_of = {attempt_of(one): (one, following) for one, following in pairwise(result["attempts"])}
    last = {attempt_of(row): (row, None) for row in result["attempts"][-1:]}
    places = next_of | last
    rows = {attempt_of(row): number for number, row in enumerate(result["attempts"])}
    found = []
    for number, ttr in enumerate(result["ttr"], 1):
        attempt, following = places.get(AttemptId(*ttr["attempt"]), (None, None))
        if attempt is None:
            continue  # an older result, which does not tell where the recovery was
        begin = _interrupted_ns(attempt)
        title = f"Recovery {number}"
        margin = _RECOVERY_MARGIN_NS
        cursors = _cursors(attempt, following, whole)
        moment = _within(whole, title, begin - margin, begin + ttr["ns"] + margin, cursors)
        found.append(replace(moment, row=rows[attempt_of(attempt)]))
    return found


def _interrupted_ns(attempt: Mapping[str, Any]) -> int:
    by_user = attempt["cause"] in USER_CAUSES
    closing = Phase.SHUTDOWN if by_user else Phase.FAILURE_DETECTION
    closed: int = attempt["phases_ns"].get(closing, 0)
    return over_ns(attempt) - closed


def _within(
    whole: Moment, title: str, begin_ns: int, end_ns: int, cursors: tuple[float, float]
) -> Moment:
    begin = min(max(begin_ns, whole.begin_ns), whole.end_ns)
    return Moment(title, begin, max(begin, min(end_ns, whole.end_ns)), *cursors)


def _cursors(
    attempt: Mapping[str, Any], following: Mapping[str, Any] | None, whole: Moment
) -> tuple[float, float]:
    """Return from where the next attempt went on, and what the one before it had reached."""
    reached = attempt["cursor_to"]
    resumed = None if following is None else following["cursor_from"]
    if reached is None or resumed is None or resumed >= reached:
        return whole.low, whole.high
    return _widened(resumed, reached)


def _all_cursors(result: Mapping[str, Any]) -> tuple[float, float]:
    rows: Sequence[Mapping[str, Any]] = result["attempts"]
    low = min((row["cursor_from"] for row in rows if row["cursor_from"] is not None), default=0)
    high = max(1, top(result))
    # A later generation goes on from where the one before it ended.
    return _widened(low, high) if 2 * low > high > low else (0, 1.15 * high)


def _widened(low: int, high: int) -> tuple[float, float]:
    return max(0, low - 0.25 * (high - low)), high + 0.15 * (high - low)
