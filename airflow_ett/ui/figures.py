"""Charts as plain plotly JSON, and the points of the small in-table graphics. Pure.

A colour is a token (``"$ett-wasted"``) that the page resolves when it draws, so that one figure
serves both themes. Plotly reads markup in every text: whatever a user named is escaped here.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_ett.metric.format import duration
from airflow_ett.ui.data import COMPONENT_LABELS, COMPONENT_TOKENS, Job

Figure = dict[str, Any]
_MIN_SLOTS = 12
_MAX_DATES = 8
_DAY_NS = 86_400 * 10**9
_HATCH = {"shape": "/", "fgcolor": "$bg", "fillmode": "overlay", "size": 5, "solidity": 0.28}


def run_bars(jobs: Sequence[Job]) -> Figure:
    """Return the stacked bars: share of the wall clock by component, one bar per job.

    ``layout.meta.unknown`` lists the bars without ETT%.
    """
    names = [_plain(job.label) for job in jobs]
    traces = [_component_bars(component, names, jobs) for component in COMPONENT_LABELS]
    traces.append(_wall_clock(names, jobs))
    traces.append(_marks("x-thin", 8, "$bad", _where(names, jobs, lambda job: job.failed)))
    traces.append(_marks("circle-open", 7, "$run", _where(names, jobs, lambda job: job.running)))
    traces.append(_question_marks(_where(names, jobs, lambda job: not job.measured)))
    return {"data": traces, "layout": _layout(names, jobs)}


def date_labels(times_ns: Sequence[int]) -> dict[int, str]:
    """Return at most 8 axis labels by index: days, or hours where all lie within one day.

    No label comes twice; a day's stands at its first time.
    """
    if not times_ns:
        return {}
    step = -(-len(times_ns) // _MAX_DATES)
    one_day = len({ns // _DAY_NS for ns in times_ns}) == 1
    labels = {i: _date(times_ns[i], one_day) for i in range(0, len(times_ns), step)}
    firsts = {text: i for i, text in reversed(labels.items())}
    return {i: text for i, text in labels.items() if firsts[text] == i}


def spark_segments(
    values: Sequence[float | None], width: int = 104, height: int = 20
) -> list[list[tuple[float, float]]]:
    """Return the polylines of a sparkline in pixels; a gap where a value is unknown."""
    known = [value for value in values if value is not None]
    low = min(known, default=0.0)
    span = (max(known, default=0.0) - low) or 1.0
    segments: list[list[tuple[float, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            segments.append([])
            continue
        x = 2 + index * (width - 4) / max(1, len(values) - 1)
        y = height - 2 - (value - low) / span * (height - 4)
        segments[-1].append((round(x, 1), round(y, 1)))
    return [segment for segment in segments if segment]


def _component_bars(component: str, names: list[str], jobs: Sequence[Job]) -> Figure:
    marker: Figure = {"color": f"$ett-{COMPONENT_TOKENS[component]}", "line": {"width": 0}}
    if component == "unattributed":
        marker["pattern"] = {**_HATCH, "bgcolor": marker["color"]}
    return {
        "type": "bar",
        "name": COMPONENT_LABELS[component],
        "legendgroup": component,
        "x": names,
        "y": [100 * job.components_ns[component] / max(1, job.wall_ns) for job in jobs],
        "customdata": [duration(job.components_ns[component]) for job in jobs],
        "marker": marker,
        "hovertemplate": "%{y:.1f}%  %{customdata}",
    }


def _wall_clock(names: list[str], jobs: Sequence[Job]) -> Figure:
    """An unseen trace: the last line of the hover box."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "Wall clock",
        "x": names,
        "y": [0] * len(jobs),
        "marker": {"opacity": 0, "color": "$fg-muted"},
        "customdata": [duration(job.wall_ns) + _ending(job) for job in jobs],
        "hovertemplate": "%{customdata}",
    }


def _ending(job: Job) -> str:
    if job.failed:
        return f", failed: {_plain((job.cause or 'unknown').replace('_', ' '))}"
    if job.running:
        return ", running, provisional"
    return "" if job.measured else ", no ETT%"


def _where(names: list[str], jobs: Sequence[Job], is_marked: Callable[[Job], bool]) -> list[str]:
    return [name for name, job in zip(names, jobs, strict=True) if is_marked(job)]


def _strip(names: list[str]) -> Figure:
    """A trace in the strip above the bars, which keeps its place when the scale changes."""
    return {
        "type": "scatter",
        "x": names,
        "y": [0.5] * len(names),
        "yaxis": "y2",
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _marks(symbol: str, size: int, color: str, names: list[str]) -> Figure:
    line = {"width": 2, "color": color}
    marker = {"symbol": symbol, "size": size, "color": color, "line": line}
    return {**_strip(names), "mode": "markers", "marker": marker}


def _question_marks(names: list[str]) -> Figure:
    font = {"color": "$fg", "size": 12}
    return {
        **_strip(names),
        "mode": "text",
        "text": ["<b>?</b>"] * len(names),
        "textfont": font,
    }


def _layout(names: list[str], jobs: Sequence[Job]) -> Figure:
    labels = date_labels([job.begin_ns for job in jobs])
    return {
        "barmode": "stack",
        "bargap": 0.22,
        "hovermode": "x unified",
        "margin": {"l": 44, "r": 16, "t": 14, "b": 26},
        "meta": {"unknown": [i for i, job in enumerate(jobs) if not job.measured]},
        "xaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names,
            "tickmode": "array",
            "tickvals": [names[i] for i in labels],
            "ticktext": list(labels.values()),
            # A few bars must not grow to the width of the page.
            "range": [-0.6, max(len(jobs), _MIN_SLOTS) - 0.4],
            "showgrid": False,
            "zeroline": False,
            "unifiedhovertitle": {"text": "<b>%{x}</b>"},
        },
        "yaxis": {
            "domain": [0, 0.93],
            "range": [0, 100],
            "tickvals": [0, 25, 50, 75, 100],
            "ticktext": ["0%", "25%", "50%", "75%", "100%"],
            "zeroline": False,
        },
        "yaxis2": {"domain": [0.935, 1], "range": [0, 1], "visible": False},
    }


def _plain(name: str) -> str:
    """Return the name such that plotly shows it and reads no markup in it (it knows no quotes)."""
    return html.escape(name, quote=False)


def _date(ns: int, one_day: bool) -> str:
    moment = datetime.fromtimestamp(ns // 10**9, UTC)
    return f"{moment:%H:%M}" if one_day else f"{moment:%b} {moment.day}"
