"""The bars: one per run, stacked by component. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from airflow_ett.metric.format import duration
from airflow_ett.ui.charts import Figure, component_marker, plain
from airflow_ett.ui.data import COMPONENT_LABELS, COMPONENT_TOKENS, Job

_MIN_SLOTS = 12
_MAX_DATES = 8
_DAY_NS = 86_400 * 10**9


def run_bars(jobs: Sequence[Job]) -> Figure:
    """Return the stacked bars: share of the wall clock by component, one bar per job.

    ``layout.meta.unknown`` lists the bars without ETT%.
    """
    names = [plain(job.label) for job in jobs]
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


def _component_bars(component: str, names: list[str], jobs: Sequence[Job]) -> Figure:
    return {
        "type": "bar",
        "name": COMPONENT_LABELS[component],
        "legendgroup": component,
        "x": names,
        "y": [100 * job.components_ns[component] / max(1, job.wall_ns) for job in jobs],
        "customdata": [duration(job.components_ns[component]) for job in jobs],
        "marker": component_marker(COMPONENT_TOKENS[component]),
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
        return f", failed: {plain((job.cause or 'unknown').replace('_', ' '))}"
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


def _date(ns: int, one_day: bool) -> str:
    moment = datetime.fromtimestamp(ns // 10**9, UTC)
    return f"{moment:%H:%M}" if one_day else f"{moment:%b} {moment.day}"
