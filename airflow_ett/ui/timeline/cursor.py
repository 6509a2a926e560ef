"""The lower panel: the cursor over time, what it repeated, and what is at risk. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from airflow_ett.metric.progress import Piece, Progress, thinned
from airflow_ett.ui.charts import Figure
from airflow_ett.ui.clock import Clock

MOST_POINTS = 2_000
_SCALES = ((10**9, "G"), (10**6, "M"), (10**3, "k"))

Lines = tuple[list[str | None], list[float | None]]


def scale(top: int) -> tuple[int, str]:
    """Return what the axis counts the cursor in, and its letter: thousands, millions, billions."""
    return next(((factor, unit) for factor, unit in _SCALES if top >= factor), (1, ""))


def cursor_traces(
    progress: Sequence[Progress], result: Mapping[str, Any], clock: Clock, top: int
) -> list[Figure]:
    """Return the cursor, what was repeated, and the high-water mark in between."""
    factor, unit = scale(top)
    step = sum(map(len, progress)) // MOST_POINTS
    pieces = thinned([piece for one in progress for piece in one.pieces(step)], MOST_POINTS)
    new = _lines([piece for piece in pieces if not piece.replay], factor, clock)
    replay = _lines([piece for piece in pieces if piece.replay], factor, clock)
    told = f"%{{y:,.1f}} {unit}".rstrip()
    day = "" if is_one_day(result, clock) else "%b %-d "
    when = f"<br>%{{x|{day}%H:%M:%S}} {clock.name}<extra></extra>"
    return [
        _trace("cursor", new, "$ett-effective", 2, f"cursor {told}{when}"),
        _trace("replayed", replay, "$ett-wasted", 4, f"replay, cursor {told}{when}"),
        {
            **_trace("high-water mark", _marks(pieces, result, factor, clock), "$fg-faint", 1, ""),
            "hoverinfo": "skip",
        },
    ]


def at_risk(result: Mapping[str, Any], clock: Clock) -> tuple[list[Figure], list[Figure]]:
    """Return the shade since the last committed checkpoint, and its word; none if all is safe."""
    if not result["at_risk_ns"]:
        return [], []
    saves = (c for c in result["checkpoints"] if c["committed_ns"] is not None)
    saved = max((c["saved_ns"] or c["committed_ns"] for c in saves), default=result["begin_ns"])
    begin, end = clock.axis(saved), clock.axis(result["end_ns"])
    shade: Figure = {"type": "rect", "xref": "x", "yref": "y domain", "x0": begin, "x1": end}
    shade |= {"y0": 0, "y1": 1, "fillcolor": "$warn-bg", "line": {"width": 0}, "layer": "below"}
    word: Figure = {"xref": "x", "yref": "y domain", "x": begin, "xanchor": "right", "y": 0.12}
    word |= {"text": "unsaved" if result["frozen"] else "at risk", "showarrow": False}
    return [shade], [word | {"font": {"size": 11, "color": "$warn"}, "xshift": -4}]


def is_one_day(result: Mapping[str, Any], clock: Clock) -> bool:
    """Say whether a job began and ended on the same day."""
    return clock.moment(result["begin_ns"]).date() == clock.moment(result["end_ns"]).date()


def _lines(pieces: Sequence[Piece], factor: int, clock: Clock) -> Lines:
    """Return the pieces as one broken line."""
    x: list[str | None] = []
    y: list[float | None] = []
    for piece in pieces:
        if x:
            x.append(None)
            y.append(None)
        x += [clock.axis(point.time_ns) for point in piece.points]
        y += [_scaled(point.cursor, factor) for point in piece.points]
    return x, y


def _marks(pieces: Sequence[Piece], result: Mapping[str, Any], factor: int, clock: Clock) -> Lines:
    """Return the high-water mark from where training left it to where it passed it again."""
    x: list[str | None] = []
    y: list[float | None] = []
    new = [piece for piece in pieces if not piece.replay]
    ends = [(one.points[-1], following.points[0].time_ns) for one, following in pairwise(new)]
    if new and result["attempts"] and _waits(new[-1], pieces, result):
        ends.append((new[-1].points[-1], result["end_ns"]))
    for mark, until_ns in ends:
        x += [clock.axis(mark.time_ns), clock.axis(until_ns), None]
        y += [_scaled(mark.cursor, factor)] * 2 + [None]
    return x, y


def _waits(last: Piece, pieces: Sequence[Piece], result: Mapping[str, Any]) -> bool:
    """Say whether training has yet to come past its mark again."""
    newest = result["attempts"][-1]
    later = (newest["submission"], newest["scheduler_restart"], newest["elastic_restart"])
    return pieces[-1] is not last or last.attempt != later


def _scaled(cursor: int, factor: int) -> float:
    return round(cursor / factor, 4)


def _trace(name: str, lines: Lines, color: str, width: int, hover: str) -> Figure:
    line: Figure = {"color": color, "width": width}
    if not hover:
        line["dash"] = "dot"
    trace: Figure = {"type": "scatter", "mode": "lines", "name": name, "line": line}
    trace |= {"x": lines[0], "y": lines[1]}
    return trace | ({"hovertemplate": hover} if hover else {})
