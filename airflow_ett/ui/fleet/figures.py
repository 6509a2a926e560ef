"""The fleet page's charts: ETT% by day, losses by day, failures by cause. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta

from airflow_ett.api.summaries import ett_pct_per_job
from airflow_ett.metric.format import accelerator_hours, duration
from airflow_ett.store.sums import Sums
from airflow_ett.ui.charts import Figure, component_marker, plain
from airflow_ett.ui.data import COMPONENT_LABELS, COMPONENT_TOKENS
from airflow_ett.ui.fleet.amounts import LOSSES, ett, losses, lost_amount
from airflow_ett.ui.fleet.causes import CauseRow

_HOUR_NS = 3_600 * 10**9
_MOST_CAUSES, _FEWEST_CAUSES = 10, 5


def trend(days: Sequence[str], sums: Mapping[str, Sums], *, held: bool) -> Figure:
    """Return ETT% by day as lines; a gap where no job with an ETT% ended.

    The jobs' mean is that from submission, so it stands beside that clock alone.
    """
    weighted = [ett(sums[day], held=held) if day in sums else None for day in days]
    traces = [_line("Weighted", "weighted", days, weighted, "$ett-effective", 2.2, "solid")]
    per_job: list[float | None] = []
    if not held:
        per_job = [ett_pct_per_job(sums[day]) if day in sums else None for day in days]
        traces.append(_line("Per job", "per-job", days, per_job, "$fg-faint", 1.4, "dot"))
    return {
        "data": traces,
        "layout": {
            **_by_day(days),
            "yaxis": {"ticksuffix": "%", "range": _range([*weighted, *per_job]), "nticks": 6},
        },
    }


def lost_by_day(days: Sequence[str], sums: Mapping[str, Sums], *, accelerated: bool) -> Figure:
    """Return the hours from submission that were not effective, stacked by component."""
    amounts = [losses(sums.get(day, Sums()), accelerated=accelerated) for day in days]
    show = _hours if accelerated else duration
    traces = [
        {
            "type": "bar",
            "name": COMPONENT_LABELS[name],
            "legendgroup": name,
            "x": list(days),
            "y": [parts[name] / _HOUR_NS for parts in amounts],
            "customdata": [show(parts[name]) for parts in amounts],
            "marker": component_marker(COMPONENT_TOKENS[name]),
            "hovertemplate": "%{customdata}",
        }
        for name in LOSSES
    ]
    held = [lost_amount(sums.get(day, Sums()), accelerated=accelerated) for day in days]
    whole = [sum(parts.values()) for parts in amounts]
    traces.append(_note("All, from submission", days, [show(ns) for ns in whole]))
    traces.append(_note("Lost while held", days, [show(ns) for ns in held]))
    return {
        "data": traces,
        "layout": {
            **_by_day(days),
            "barmode": "stack",
            "bargap": 0.2,
            "yaxis": {"rangemode": "tozero", "tickformat": ",~r", "ticksuffix": " h", "nticks": 6},
        },
    }


def failures(rows: Sequence[CauseRow]) -> Figure:
    """Return failures per 100 attempts by cause: this period over the one before, largest first.

    Of more causes than there is room for, those with the most failures.
    """
    shown = rows[:_MOST_CAUSES]
    places = list(range(len(shown)))
    labels = [plain(row.label) for row in shown]
    now = [row.now or 0 for row in shown]
    traces = [_causes("This period", places, labels, now, "$fg-muted")]
    traces[0] |= {
        "text": [f"{value:.1f}" for value in now],
        "textposition": "outside",
        "textfont": {"color": "$fg", "size": 11},
        "cliponaxis": False,
    }
    if any(row.before is not None for row in shown):
        before = [row.before or 0 for row in shown]
        traces.append(_causes("The period before", places, labels, before, "$border-strong"))
    return {
        "data": traces,
        "layout": {
            "barmode": "group",
            "bargap": 0.32,
            "bargroupgap": 0.05,
            "hovermode": "closest",
            "margin": {"l": 104, "r": 36, "t": 8, "b": 28},
            "xaxis": {"rangemode": "tozero", "nticks": 5},
            "yaxis": {
                # A few bars must not grow to the height of the chart.
                "range": [max(len(shown), _FEWEST_CAUSES) - 0.5, -0.5],
                "showgrid": False,
                "zeroline": False,
                "ticks": "",
                "tickmode": "array",
                "tickvals": places,
                "ticktext": labels,
            },
        },
    }


def _hours(accelerator_ns: int) -> str:
    return f"{accelerator_hours(accelerator_ns)}\u00a0h"


def _line(
    name: str,
    group: str,
    days: Sequence[str],
    values: list[float | None],
    color: str,
    width: float,
    dash: str,
) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "legendgroup": group,
        "x": list(days),
        "y": values,
        "line": {"color": color, "width": width, "dash": dash},
        # A day between gaps is no line.
        "marker": {
            "color": color,
            "size": [5 if _alone(values, i) else 0 for i in range(len(days))],
        },
        "hovertemplate": "%{y:.1f}%",
    }


def _alone(values: Sequence[float | None], index: int) -> bool:
    beside = (*values[max(0, index - 1) : index], *values[index + 1 : index + 2])
    return values[index] is not None and all(value is None for value in beside)


def _note(name: str, days: Sequence[str], texts: list[str]) -> Figure:
    """An unseen trace: a line of the hover box."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(days),
        "y": [0] * len(days),
        "marker": {"opacity": 0, "color": "$fg-muted"},
        "customdata": texts,
        "hovertemplate": "%{customdata}",
    }


def _causes(
    name: str, places: list[int], labels: list[str], values: list[float], color: str
) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": places,
        "x": values,
        "customdata": labels,
        "marker": {"color": color, "line": {"width": 0}},
        "hovertemplate": "%{customdata}: %{x:.1f} per 100 attempts",
    }


def _by_day(days: Sequence[str]) -> Figure:
    """The layout of a chart with a day at each place of its axis."""
    half = timedelta(hours=12)
    ends = [datetime.combine(date.fromisoformat(day), time()) for day in (days[0], days[-1])]
    return {
        "hovermode": "x unified",
        "margin": {"l": 48, "r": 16, "t": 8, "b": 28},
        "xaxis": {
            "type": "date",
            "tickformat": "%b %-d",
            "hoverformat": "%a %b %-d, %Y",
            "showgrid": False,
            "range": [(ends[0] - half).isoformat(), (ends[1] + half).isoformat()],
        },
    }


def _range(values: Sequence[float | None]) -> list[float]:
    """Return an axis of lines in percent: steps of 5 around the values, within 0 and 100."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=100.0)
    return [max(0, 5 * math.floor((low - 1) / 5)), min(100, 5 * math.ceil((high + 1) / 5))]
