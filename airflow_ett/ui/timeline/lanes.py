"""The upper panel's lanes: one row an attempt, its phases to scale, what ran beside them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from airflow_ett.events import AttemptId
from airflow_ett.metric import Components, Phase, Span
from airflow_ett.metric.format import UNKNOWN, cursor, duration
from airflow_ett.metric.progress import Progress
from airflow_ett.metric.result import Lane
from airflow_ett.ui.charts import Figure, phase_token, plain
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.data import COMPONENT_LABELS
from airflow_ett.ui.timeline.bars import Bar, Row, Stretch, lumped, merged, stacked
from airflow_ett.ui.timeline.moments import attempt_of
from airflow_ett.ui.timeline.phases import HATCHED, label_token

_MOST_BESIDE, _MOST_DEEP = 500, 6
_BESIDE_TOP, _BESIDE_ROOM, _PITCH, _GAP = -0.315, 0.28, 0.11, 0.02
"""In rows: where what ran beside begins, below a row's middle, its room down to the next row's
marks, what one line of it takes there at most, and what of that stays empty."""

_TO_SCALE = 0.02
"""A line too thin to be seen. With one plotly rounds a bar's edges to pixels; without any it makes
every bar a pixel wide at least, and a job would seem to be made of its shortest phases."""

_MOVES = (Phase.TRAIN, Phase.REPLAY)


class Rows:
    """Which attempt stands where: the first on top."""

    def __init__(self, attempts: Sequence[Mapping[str, Any]]) -> None:
        self.ids = [attempt_of(row) for row in attempts]
        self._number = {name: number for number, name in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    def number(self, attempt: AttemptId) -> int:
        """Return the attempt's number, from 0."""
        return self._number[attempt]

    def height(self, number: int) -> int:
        """Return where an attempt's row lies on the axis."""
        return len(self.ids) - 1 - number

    def main(self, lanes: Iterable[Lane]) -> list[Row]:
        """Return the main lanes in their rows.

        The wait for a retry belongs to the row of the attempt that it leads to.
        """
        found = []
        for lane in lanes:
            number, count = self.number(lane.attempt), len(lane.keys)
            waits = count and lane.phases[lane.keys[-1]] == Phase.RETRY_WAIT
            if waits and number + 1 < len(self):
                count -= 1
                edges, keys = lane.edges[count:], lane.keys[count:]
                found.append(Row(number + 1, edges, keys, lane.phases))
            edges, keys = lane.edges[: count + 1], lane.keys[:count]
            found.append(Row(number, edges, keys, lane.phases))
        return found

    def beside(self, lanes: Iterable[Lane]) -> list[Bar]:
        """Return what ran beside the main lanes."""
        return [
            Bar(self.number(span.attempt), _name(span), *span[:2], 1, *span[:2])
            for lane in lanes
            for span in lane.beside
        ]


def _name(span: Span) -> str:
    return span.phase if span.phase == span.lane else f"{span.phase} ({span.lane})"


class Drawing:
    """Makes traces of bars: one a phase, whatever their number."""

    def __init__(
        self,
        rows: Rows,
        progress: Iterable[Progress],
        clock: Clock,
        begin_ns: int,
        of: Mapping[str, str],
        components: Components,
    ) -> None:
        self._rows = rows
        self._progress = {one.attempt: one for one in progress}
        self._clock = clock
        self._begin_ns = begin_ns
        self._of = of
        self._components = components

    def main(self, rows: Sequence[Row], whole: Stretch, details: Sequence[Stretch]) -> list[Figure]:
        """Return a trace for each phase, those of a component together."""
        found = sorted(merged(rows, whole, details), key=lambda one: one.phase)
        by_phase = {phase: [*group] for phase, group in groupby(found, lambda one: one.phase)}
        order = {name: number for number, name in enumerate(self._components)}
        names = sorted(by_phase, key=lambda phase: (order[self._component(phase)], phase))
        return [self._phase(name, by_phase[name]) for name in names]

    def beside(self, bars: Iterable[Bar], whole: Stretch) -> list[Figure]:
        """Return the trace of the background lanes."""
        placed = stacked(lumped(bars, whole, _MOST_BESIDE), _MOST_DEEP)
        if not placed:
            return []
        found, depths = zip(*placed, strict=True)
        pitch = min(_PITCH, _BESIDE_ROOM / (1 + max(depths)))
        width = round(pitch - _GAP, 4)
        trace = self._bars(found, [_BESIDE_TOP - width / 2 - pitch * n for n in depths], width)
        trace |= {"name": "background", "marker": {"color": "$fg-faint", "line": {"width": 0}}}
        trace["customdata"] = [[plain(one.phase), self._told(one)] for one in found]
        hover = "<b>%{customdata[0]}</b>  %{customdata[1]}<br>background, not summed"
        return [trace | {"hovertemplate": f"{hover}<extra></extra>"}]

    def _component(self, phase: str) -> str:
        return self._of.get(phase) or self._components.of(phase)

    def _phase(self, phase: str, bars: list[Bar]) -> Figure:
        component = self._component(phase)
        trace = self._bars(bars, [0] * len(bars), 0.44)
        trace |= {"name": plain(phase), "marker": _marker(phase_token(phase, component), phase)}
        if phase not in HATCHED:
            trace |= {"text": plain(phase), "textposition": "inside", "textangle": 0}
            color = f"${label_token(phase, component)}"
            trace |= {
                "insidetextanchor": "middle",
                "insidetextfont": {"color": color, "size": 11},
            }
        owner = self._components[component].owner
        label = COMPONENT_LABELS.get(component, component)
        trace["meta"] = [plain(phase), plain(f"{label}, {owner}" if owner else label)]
        hover = "<b>%{meta[0]}</b>  %{customdata[0]}<br>%{meta[1]}"
        told = [[self._told(one)] for one in bars]
        if phase in _MOVES:
            hover += "%{customdata[1]}"
            told = [[*texts, self._moved(one)] for texts, one in zip(told, bars, strict=True)]
        return trace | {"customdata": told, "hovertemplate": f"{hover}<extra></extra>"}

    def _bars(self, bars: Sequence[Bar], offsets: Sequence[float], width: float) -> Figure:
        """Return their places. Both ends are cut to the millisecond, so that neighbours touch."""
        heights = [self._rows.height(one.row) for one in bars]
        return {
            "type": "bar",
            "orientation": "h",
            "y": [round(sum(pair), 3) for pair in zip(heights, offsets, strict=True)],
            "base": [self._clock.axis(one.begin_ns) for one in bars],
            "x": [one.end_ns // 10**6 - one.begin_ns // 10**6 for one in bars],
            "width": width,
            "yaxis": "y2",
        }

    def _told(self, one: Bar) -> str:
        """Return the length of a bar and, in a second line, when it was."""
        length = duration(one.end_ns - one.begin_ns)
        if one.spans > 1:
            length += f" ({one.spans:,} spans)"
        first = self._clock.brief(one.first_ns, self._begin_ns)
        last = self._clock.brief(one.last_ns, self._begin_ns)
        after = duration(one.first_ns - self._begin_ns)
        return f"{length}<br>{first} – {last} {self._clock.name}, +{after}"

    def _moved(self, one: Bar) -> str:
        """Return from where to where the cursor went, as a line; '' where nobody knows."""
        progress = self._progress.get(self._rows.ids[one.row])
        if progress is None:
            return ""
        low, high = cursor(progress.at(one.first_ns)), cursor(progress.at(one.last_ns))
        return "" if UNKNOWN in (low, high) else f"<br>cursor {low} → {high}"


def _marker(color: str, phase: str = "") -> Figure:
    marker: Figure = {"color": f"${color}", "line": {"color": f"${color}", "width": _TO_SCALE}}
    if phase in HATCHED:
        shape, size, solidity = HATCHED[phase]
        pattern = {"shape": shape, "fgcolor": "$bg", "bgcolor": f"${color}", "size": size}
        marker["pattern"] = {**pattern, "fillmode": "overlay", "solidity": solidity}
    return marker
