"""What stands on the rows: checkpoints, how attempts ended, and where a live job is now. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_ett.events import AttemptId
from airflow_ett.metric import Phase
from airflow_ett.metric.format import cursor, duration
from airflow_ett.ui.charts import Figure, plain
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.timeline.lanes import Rows
from airflow_ett.ui.timeline.moments import attempt_of, over_ns
from airflow_ett.ui.words import cause, is_wish

_MOST_SAVES = 200
_FRESH_NS = 120 * 10**9
"""A live job is measured every few seconds: older than this, its end is not now."""


class _Save(NamedTuple):
    """A save on its row; it stands for ``saves`` of them."""

    time_ns: int
    height: int
    row: Mapping[str, Any]
    saves: int = 1


def checkpoints(result: Mapping[str, Any], rows: Rows, clock: Clock) -> list[Figure]:
    """Return ticks: whole where a save was committed, half and faint where it never was."""
    committed = [save for save in _placed(result, rows) if save.row["committed_ns"] is not None]
    others = [save for save in _placed(result, rows) if save.row["committed_ns"] is None]
    whole = result["begin_ns"], result["end_ns"]
    found = []
    for saves, name, size, color, offset in (
        (_apart(committed, whole), "checkpoint", 9, "$fg", 0.33),
        (_apart(others, whole), "checkpoint, not committed", 4.5, "$fg-faint", 0.29),
    ):
        if saves:
            marker = {"symbol": "line-ns", "size": size, "line": {"width": 2, "color": color}}
            trace = _points([(save.time_ns, save.height + offset) for save in saves], clock)
            trace |= {"name": name, "mode": "markers", "marker": marker}
            trace["customdata"] = [_saved(save, clock) for save in saves]
            hover = f"<b>{name}</b> %{{customdata}}<extra></extra>"
            found.append(trace | {"hovertemplate": hover})
    return found


def endings(attempts: Sequence[Mapping[str, Any]], rows: Rows, clock: Clock) -> list[Figure]:
    """Return a cross where an attempt failed, with its cause; a user's own wish is no failure."""
    ended = [row for row in attempts if row["cause"] is not None]
    found = []
    for name, symbol, color, mine in (
        ("failure", "x-thin", "$bad", [row for row in ended if not is_wish(row["cause"])]),
        (
            "ended by a user",
            "line-ew",
            "$fg-muted",
            [row for row in ended if is_wish(row["cause"])],
        ),
    ):
        if mine:
            places = [(over_ns(row), rows.height(rows.number(attempt_of(row)))) for row in mine]
            marker = {"symbol": symbol, "size": 9, "line": {"width": 2.2, "color": color}}
            trace = _points(places, clock)
            trace |= {"name": name, "mode": "markers+text", "marker": marker}
            trace |= {
                "text": [f"  {plain(cause(row['cause']))}" for row in mine],
                "textposition": [_beside(row, attempts[-1]) for row in mine],
                "textfont": {"color": color, "size": 12},
                "customdata": [[plain(cause(row["cause"])), _told(row, clock)] for row in mine],
                "hovertemplate": "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
                "cliponaxis": False,
            }
            found.append(trace)
    return found


def now_line(
    result: Mapping[str, Any], now_ns: int, clock: Clock
) -> tuple[list[Figure], list[Figure]]:
    """Return the line at a live job's end and its word, nothing once the job is over."""
    if result["frozen"]:
        return [], []
    end = clock.axis(result["end_ns"])
    line: Figure = {"type": "line", "xref": "x", "yref": "paper", "x0": end, "x1": end}
    line |= {"y0": 0, "y1": 1, "line": {"color": "$fg-muted", "width": 1}}
    is_now = now_ns - result["end_ns"] < _FRESH_NS
    word = {"xref": "x", "yref": "paper", "x": end, "y": 1, "yanchor": "top", "showarrow": False}
    word |= {"text": "now", "xanchor": "left", "xshift": 3}
    if not is_now:
        word |= {"text": "last sign of life", "xanchor": "right", "xshift": -3}
    return [line], [word | {"font": {"size": 11, "color": "$fg-muted"}}]


def _placed(result: Mapping[str, Any], rows: Rows) -> list[_Save]:
    height = {name: rows.height(number) for number, name in enumerate(rows.ids)}
    return [
        _Save(time_ns, height[attempt], row)
        for row in result["checkpoints"]
        if (time_ns := row["committed_ns"] or row["saved_ns"]) is not None
        and (attempt := AttemptId(*row["attempt"])) in height
    ]


def _apart(saves: Iterable[_Save], whole: tuple[int, int]) -> list[_Save]:
    """Return the newest of those that would stand on one tick."""
    width = max(1, (whole[1] - whole[0]) // _MOST_SAVES)
    near: dict[tuple[int, int], _Save] = {}
    for save in saves:
        place = save.height, save.time_ns // width
        count = near[place].saves + 1 if place in near else 1
        near[place] = save._replace(saves=count)
    return list(near.values())


def _points(places: Sequence[tuple[int, float]], clock: Clock) -> Figure:
    return {
        "type": "scatter",
        "x": [clock.axis(time_ns) for time_ns, _ in places],
        "y": [height for _, height in places],
        "yaxis": "y2",
    }


def _saved(save: _Save, clock: Clock) -> str:
    row = save.row
    text = f"at cursor {cursor(row['cursor'])}<br>{clock.instant(save.time_ns)}"
    text += f"<br>blocking {duration(row['blocking_ns'])}, upload {duration(row['upload_ns'])}"
    return text if save.saves == 1 else f"{text}<br>the newest of {save.saves} so close together"


def _beside(attempt: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Beside the cross, and above what follows it in the same row."""
    waits = attempt is last and attempt["phases_ns"].get(Phase.RETRY_WAIT, 0)
    return "top right" if waits else "middle right"


def _told(attempt: Mapping[str, Any], clock: Clock) -> str:
    text = attempt["evidence"].get("text")
    lines = textwrap.wrap(text, 80, max_lines=6) if isinstance(text, str) else []
    return "<br>".join([clock.instant(over_ns(attempt)), *map(plain, lines)])
