"""Step time against the high-water mark: which of it trained on new data, which repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric.evidence import Notes, whole
from airflow_ett.metric.phases import Phase


class Claim(NamedTuple):
    """A stretch of a lane for which there is evidence.

    Where claims overlap, the one with the later ``opened_ns`` is the inner one and wins; on a tie
    the shorter one.
    """

    begin_ns: int
    end_ns: int
    phase: str
    opened_ns: int


class Trained(NamedTuple):
    """First-time training: ``ns`` of step time from one cursor to another."""

    cursor_from: int
    cursor_to: int
    ns: int


class Interval(NamedTuple):
    """An interval event: steps from one cursor to another, coalesced."""

    begin_ns: int
    end_ns: int
    cursor_from: int
    cursor_to: int
    steps: int
    step_ns: int
    wait_ns: int
    other_ns: int
    fragment: bool


@dataclass(slots=True)
class Walk:
    """What the intervals of one attempt say.

    ``advance_ns`` is A, the end of its first step that passed the high-water mark ``hwm``, and
    ``last_step_ns`` the end of its last step; None where there was none.
    """

    hwm: int
    claims: list[Claim] = field(default_factory=list)
    trained: list[Trained] = field(default_factory=list)
    advance_ns: int | None = None
    last_step_ns: int | None = None
    cursor_from: int | None = None
    cursor_to: int | None = None


def known_hwm(ranks: Mapping[int, list[Event]], hwm: int) -> int:
    """Return the high-water mark that the Sessions knew at first, if it is above ``hwm``.

    They may know more than the intervals tell: the cursor file outlives a lost log line. What one
    says once the main rank's steps have begun counts their own progress and is left out.
    """
    main = ranks[min(ranks)] if ranks else []
    begins = [whole(event.data, "from") for event in main if event.kind == Kind.INTERVAL]
    steps_ns = min((begin for begin in begins if begin is not None), default=None)
    for event in (event for told in ranks.values() for event in told):
        if steps_ns is not None and event.time_ns > steps_ns:
            continue
        if event.kind == Kind.SESSION_STARTED:
            hwm = max(hwm, whole(event.data, "cursor_hwm") or 0)
        elif event.kind == Kind.RESUMED:
            hwm = max(hwm, *(whole(event.data, name) or 0 for name in ("hwm", "cursor")))
    return hwm


def read_intervals(events: Iterable[Event], attempt: AttemptId, notes: Notes) -> list[Interval]:
    """Return the intervals among ``events`` by begin; one whose parts do not fit is trimmed."""
    told = (event for event in events if event.kind == Kind.INTERVAL)
    return sorted(read for event in told if (read := _read(event, attempt, notes)) is not None)


def _read(event: Event, attempt: AttemptId, notes: Notes) -> Interval | None:
    data = event.data
    names = ("from", "to", "cursor_from", "cursor_to")
    values = [value for name in names if (value := whole(data, name)) is not None]
    if len(values) < len(names) or values[1] < values[0]:
        notes.add(f"intervals of attempt {attempt} that cannot be read were skipped")
        return None
    begin, end, cursor_from, cursor_to = values
    length = end - begin
    parts = [whole(data, name) or 0 for name in ("wait_ns", "step_ns", "other_ns")]
    if sum(parts) != length:
        notes.add(f"intervals of attempt {attempt} have parts that do not sum to their length")
    wait = min(parts[0], length)
    step = min(parts[1], length - wait)
    return Interval(
        begin_ns=begin,
        end_ns=end,
        cursor_from=cursor_from,
        cursor_to=cursor_to,
        steps=whole(data, "steps") or 0,
        step_ns=step,
        wait_ns=wait,
        other_ns=length - wait - step,
        fragment=data.get("fragment") is True,
    )


def walk(intervals: list[Interval], hwm: int, attempt: AttemptId, notes: Notes) -> Walk:
    """Book each interval's parts, moving the high-water mark along.

    A fragment belongs to the step that the next interval ends. Within an interval the parts lie in
    the order data_wait, replay, train, loop_other: exact for one step, a convention for many.
    """
    result = Walk(hwm)
    fragments: list[Interval] = []
    for interval in intervals:
        if result.cursor_to is not None and interval.cursor_from < result.cursor_to:
            notes.add(f"cursor_reset: the cursor of attempt {attempt} went back")
        if result.cursor_from is None:
            result.cursor_from = interval.cursor_from
        result.cursor_to = max(result.cursor_to or 0, interval.cursor_to)
        if interval.fragment:
            fragments.append(interval)
        else:
            _book(result, interval, fragments, attempt, notes)
            fragments = []
    for fragment in fragments:
        _claim(result, fragment, 0, Phase.LOOP_OTHER)
    return result


def _book(
    result: Walk, interval: Interval, fragments: list[Interval], attempt: AttemptId, notes: Notes
) -> None:
    if not interval.steps and not interval.step_ns:
        # It ends no step: fragments before it are of a step that was given up.
        for part in (*fragments, interval):
            _claim(result, part, 0, Phase.LOOP_OTHER)
        result.hwm = max(result.hwm, interval.cursor_to)
        return
    steps = max(interval.steps, 1)
    old = _steps_below(interval, steps, result.hwm)
    replay = interval.step_ns * old // steps
    train = interval.step_ns - replay
    for fragment in fragments:
        _claim(result, fragment, 0, Phase.REPLAY if old else Phase.TRAIN)
    _claim(result, interval, replay, Phase.TRAIN)
    stepped = interval.begin_ns + interval.wait_ns
    result.last_step_ns = stepped + interval.step_ns
    if old == steps:
        return
    if old:
        notes.add(f"attempt {attempt}: a step count that crosses the high-water mark was split")
    if result.advance_ns is None:
        result.advance_ns = stepped + replay + train // (steps - old)
        if steps - old > 1:
            notes.add(f"attempt {attempt}: the end of its first new step is an estimate")
    first = 0 if old else sum(fragment.step_ns for fragment in fragments)
    known = max(interval.cursor_from, result.hwm)
    result.trained.append(Trained(known, interval.cursor_to, train + first))
    result.hwm = interval.cursor_to


def _steps_below(interval: Interval, steps: int, hwm: int) -> int:
    """Return how many of the steps end at or below the high-water mark."""
    if interval.cursor_to <= hwm:
        return steps
    if interval.cursor_from >= hwm:
        return 0
    span = interval.cursor_to - interval.cursor_from
    return (hwm - interval.cursor_from) * steps // span


def _claim(result: Walk, interval: Interval, replay_ns: int, phase: str) -> None:
    at = interval.begin_ns
    for name, length in (
        (Phase.DATA_WAIT, interval.wait_ns),
        (Phase.REPLAY, replay_ns),
        (phase, interval.step_ns - replay_ns),
        (Phase.LOOP_OTHER, interval.other_ns),
    ):
        if length:
            result.claims.append(Claim(at, at + length, name, interval.begin_ns))
        at += length
