"""The bars: one per job, stacked by component. Pure.

Of hundreds of bars every text counts: the names stand in the figure once, as the categories of its
axis, and traces that only know the first (``x0``) take them in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from airflow_ett.metric.format import duration
from airflow_ett.ui.charts import Figure, component_marker, plain
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.data import COMPONENT_LABELS, COMPONENT_TOKENS, Job, Measure

_MAX_DATES = 8
_MIN_SLOTS = _MAX_DATES
_MIN_BARS = 12
_MANY = 120


def run_bars(
    jobs: Sequence[Job], links: Sequence[str], clock: Clock, *, held: bool = False
) -> Figure:
    """Return the stacked bars: share of each job's time by component, on one of the clocks.

    ``links`` are the addresses that the bars open. ``layout.meta.unknown`` lists those without
    ETT%.
    """
    names = _distinct([plain(job.label) for job in jobs])
    measures = [job.on(held=held) for job in jobs]
    traces = [_component_bars(component, names[0], measures) for component in COMPONENT_LABELS]
    traces.append(_length(jobs, names[0], measures, held=held))
    traces.append(_marks("x-thin", 8, "$bad", _where(names, jobs, lambda job: job.failed)))
    traces.append(_marks("circle-open", 7, "$run", _where(names, jobs, lambda job: job.running)))
    traces.append(_question_marks(_where(names, jobs, _is_unexplained)))
    return {"data": traces, "layout": _layout(names, jobs, links, clock)}


def date_labels(times_ns: Sequence[int], clock: Clock) -> dict[int, str]:
    """Return at most 8 axis labels by index: days, or hours where all lie within one day.

    No label comes twice; a day's stands at its first time.
    """
    step = -(-len(times_ns) // _MAX_DATES) or 1
    one_day = len({clock.moment(ns).date() for ns in times_ns}) == 1
    shown = {i: times_ns[i] for i in range(0, len(times_ns), step)}
    labels = {
        i: f"{clock.moment(ns):%H:%M}" if one_day else clock.day(ns) for i, ns in shown.items()
    }
    firsts = {text: i for i, text in reversed(labels.items())}
    return {i: text for i, text in labels.items() if firsts[text] == i}


def _distinct(names: Sequence[str]) -> list[str]:
    """An axis has each category once: of equal names the later ones get a number."""
    taken = set(names)
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        while seen[name] > 1 and f"{name} ({seen[name]})" in taken:
            seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        taken.add(result[-1])
    return result


def _component_bars(component: str, first: str, measures: Sequence[Measure]) -> Figure:
    return {
        "type": "bar",
        "name": COMPONENT_LABELS[component],
        "legendgroup": component,
        "x0": first,
        "y": [round(100 * m.parts_ns[component] / max(1, m.whole_ns), 3) for m in measures],
        "customdata": [_length_text(m.parts_ns[component]) for m in measures],
        "marker": component_marker(COMPONENT_TOKENS[component]),
        "hovertemplate": "%{y:.1f}%  %{customdata}",
    }


def _length(jobs: Sequence[Job], first: str, measures: Sequence[Measure], *, held: bool) -> Figure:
    """An unseen trace: the last line of the hover box."""
    pairs = zip(jobs, measures, strict=True)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "Accelerators held" if held else "Wall clock",
        "x0": first,
        "y": [0] * len(jobs),
        "marker": {"opacity": 0, "color": "$fg-muted"},
        "customdata": [_length_text(m.whole_ns) + _ending(job) for job, m in pairs],
        "hovertemplate": "%{customdata}",
    }


def _length_text(ns: int) -> str:
    # Nothing breaks lines in a hover box, and in JSON a no-break space is six characters.
    return duration(ns).replace("\u00a0", " ")


def _ending(job: Job) -> str:
    if job.failed:
        return f", failed: {plain((job.cause or 'unknown').replace('_', ' '))}"
    if job.running:
        return ", running, provisional"
    return "" if job.measured else ", no ETT%"


def _is_unexplained(job: Job) -> bool:
    """Tell whether nothing else says why a job has no ETT%: a bar has room for one mark."""
    return not (job.measured or job.failed or job.running)


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


def _gap(bars: int) -> float:
    """Return the share of a bar's place that stays empty. Few bars must not grow with the page."""
    if bars > _MANY:
        return 0
    return round(1 - 0.78 * min(1, max(bars, _MIN_SLOTS) / _MIN_BARS), 2)


def _layout(names: list[str], jobs: Sequence[Job], links: Sequence[str], clock: Clock) -> Figure:
    labels = date_labels([job.begin_ns for job in jobs], clock)
    return {
        "barmode": "stack",
        "bargap": _gap(len(jobs)),
        "hovermode": "x unified",
        "margin": {"l": 44, "r": 16, "t": 14, "b": 26},
        "meta": {
            "unknown": [i for i, job in enumerate(jobs) if not job.measured],
            "links": list(links),
        },
        "xaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names,
            "tickmode": "array",
            "tickvals": [names[i] for i in labels],
            "ticktext": list(labels.values()),
            "tickangle": 0,
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
