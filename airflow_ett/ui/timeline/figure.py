"""A job's timeline as one figure: attempts above, the cursor below, on one time axis. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_ett.metric import Components
from airflow_ett.metric.progress import Progress
from airflow_ett.metric.result import Lane
from airflow_ett.ui.charts import Figure, plain
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.timeline.cursor import at_risk, cursor_traces, is_one_day, scale
from airflow_ett.ui.timeline.lanes import Drawing, Rows
from airflow_ett.ui.timeline.marks import checkpoints, endings, now_line
from airflow_ett.ui.timeline.moments import Moment, moments, over_ns, top
from airflow_ett.ui.words import cause

_ABOVE, _BELOW, _DAYS, _GAP = 6, 28, 16, 22
_LEFT, _RIGHT, _MOST_RIGHT = 104, 16, 150
_LETTER_PX, _NARROWEST_PX = 6.8, 440
_FIRST_ROWS, _FIRST_PX, _ROW_PX = 4, 292, 56
_CURSOR_PX = 128
_LONGEST_LABEL = 12


def height(attempts: int) -> int:
    """Return the figure's height in pixels."""
    return _ABOVE + _BELOW + _GAP + _CURSOR_PX + round(_rows_px(max(attempts, _FIRST_ROWS)))


def row_px(number: int, attempts: int) -> int:
    """Return how far below the figure's top an attempt's row has its middle, in pixels."""
    return round(_ABOVE + (number + 0.55) * _rows_px(attempts) / (attempts + 0.15))


def right_px(result: Mapping[str, Any]) -> int:
    """Return the room that causes in words need beyond the plot, at any preset, narrow as it is."""
    attempts = result["attempts"]
    whole, *near = moments(result)
    shown = [(row, whole) for row in attempts]
    shown += [(attempts[one.row], one) for one in near if one.row is not None and attempts]
    beyond = [
        20 + _LETTER_PX * len(cause(row["cause"])) - _NARROWEST_PX * left
        for row, one in shown
        if row["cause"] and 0 <= (left := _left(one, over_ns(row))) <= 1
    ]
    return min(_MOST_RIGHT, max(_RIGHT, round(max(beyond, default=0))))


def timeline_figure(
    result: Mapping[str, Any],
    lanes: Iterable[Lane],
    progress: Iterable[Progress],
    clock: Clock,
    *,
    now_ns: int,
    of: Mapping[str, str],
    components: Components,
) -> Figure:
    """Return the figure of a job with its spans and the progress of its attempts.

    ``of`` tells the component of phases that ``components`` do not know.
    """
    progress = list(progress)
    rows = Rows(result["attempts"])
    whole, *near = moments(result)
    stretch, details = (whole.begin_ns, whole.end_ns), [(one.begin_ns, one.end_ns) for one in near]
    drawing = Drawing(rows, progress, clock, result["begin_ns"], of, components)
    lanes = list(lanes)
    data = drawing.main(rows.main(lanes), stretch, details)
    data += drawing.beside(rows.beside(lanes), stretch)
    data += checkpoints(result, rows, clock) + endings(result["attempts"], rows, clock)
    data += cursor_traces(progress, result, clock, top(result))
    shade, risk = at_risk(result, clock)
    line, now = now_line(result, now_ns, clock)
    return {
        "data": data,
        "layout": {
            "barmode": "overlay",
            "bargap": 0,
            "uniformtext": {"minsize": 11, "mode": "hide"},
            "hovermode": "closest",
            "margin": {
                "l": _LEFT,
                "r": right_px(result),
                "t": _ABOVE,
                "b": _below(result, clock),
            },
            "meta": {"zoom": True},
            **_axes(result, clock),
            "shapes": shade + line,
            "annotations": risk + now + _without_cursor(result),
        },
    }


def no_figure(text: str) -> Figure:
    """Return a figure that says why there is none."""
    hidden = {"visible": False}
    word = {"xref": "paper", "yref": "paper", "x": 0, "y": 1, "xanchor": "left", "yanchor": "top"}
    word |= {"text": text, "showarrow": False, "font": {"size": 12, "color": "$fg-muted"}}
    return {"data": [], "layout": {"xaxis": hidden, "yaxis": hidden, "annotations": [word]}}


def _axes(result: Mapping[str, Any], clock: Clock) -> Figure:
    attempts = result["attempts"]
    count, whole = len(attempts), moments(result)[0]
    plot = height(count) - _ABOVE - _below(result, clock)
    upper = 1 - _rows_px(count) / plot
    factor, unit = scale(top(result))
    knows = top(result) > 0
    one_day = is_one_day(result, clock)
    formats = [
        {"dtickrange": [None, 60_000], "value": "%H:%M:%S"},
        {"dtickrange": [60_000, 86_400_000], "value": "%H:%M" if one_day else "%H:%M\n%b %-d"},
        {"dtickrange": [86_400_000, None], "value": "%b %-d"},
    ]
    return {
        "xaxis": {
            "type": "date",
            "range": [clock.axis(whole.begin_ns), clock.axis(whole.end_ns)],
            "tickformatstops": formats,
        },
        "yaxis": {
            "domain": [0, round(upper - _GAP / plot, 4)],
            "range": [whole.low / factor, whole.high / factor],
            "title": {"text": f"Cursor, {unit} samples".replace(",  ", ", "), "standoff": 8},
            "separatethousands": True,
            "exponentformat": "none",
            "nticks": 5 + 2 * (count < _FIRST_ROWS),
            "zeroline": False,
            "showticklabels": knows,
            "showgrid": knows,
            "ticks": "outside" if knows else "",
        },
        "yaxis2": {
            "domain": [round(upper, 4), 1],
            "anchor": "x",
            "tickmode": "array",
            "tickvals": list(range(count)),
            "ticktext": [_label(n, attempts[n - 1]) for n in range(count, 0, -1)],
            "range": [-0.6, count - 0.45],
            "showgrid": False,
            "zeroline": False,
        },
    }


def _without_cursor(result: Mapping[str, Any]) -> list[Figure]:
    """Return the words in an empty lower panel."""
    if top(result):
        return []
    word = {"xref": "x domain", "yref": "y domain", "x": 0.5, "y": 0.5, "showarrow": False}
    text = "No training step was reported" + ("" if result["frozen"] else " yet")
    return [word | {"text": text, "font": {"size": 12, "color": "$fg-muted"}}]


def _left(moment: Moment, time_ns: int) -> float:
    """Return the share of a stretch that is left after a point in time."""
    return (moment.end_ns - time_ns) / max(1, moment.end_ns - moment.begin_ns)


def _below(result: Mapping[str, Any], clock: Clock) -> int:
    """Return the room for the axis: a second line has the days, where there are several."""
    return _BELOW if is_one_day(result, clock) else _BELOW + _DAYS


def _rows_px(attempts: int) -> float:
    """Return the upper panel's height. Of few attempts the rows stay low: the cursor gets room."""
    if attempts > _FIRST_ROWS:
        return _FIRST_PX + _ROW_PX * (attempts - _FIRST_ROWS)
    return _FIRST_PX * (attempts + 0.15) / (_FIRST_ROWS + 0.15)


def _label(number: int, attempt: Mapping[str, Any]) -> str:
    layer: str = attempt["layer"]
    if len(layer) > _LONGEST_LABEL:
        layer = f"{layer[: _LONGEST_LABEL - 1]}…"
    return f"{number} · {plain(layer)}"
