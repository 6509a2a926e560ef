"""What the page says around a job's timeline, without the figure itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from airflow_ett.metric import COMPONENTS, Components, Phase
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.timeline.cursor import scale
from airflow_ett.ui.timeline.figure import height, row_px
from airflow_ett.ui.timeline.moments import Moment, moments, top
from airflow_ett.ui.timeline.phases import Group, legend
from airflow_ett.ui.words import is_wish

_BUTTONS = 4
_TALL = 12


@dataclass(frozen=True, slots=True)
class Preset:
    """A zoom: its name, the range of the time axis, and that of the cursor's.

    ``top`` is where the figure has what it is about, in pixels; None for all of it.
    """

    title: str
    x: tuple[str, str]
    y: tuple[float, float]
    top: int | None


@dataclass(frozen=True, slots=True)
class Marks:
    """What else the legend has to name."""

    unattributed: bool
    committed: bool
    uncommitted: bool
    failure: bool
    upload: bool


@dataclass(frozen=True, slots=True)
class TimelineView:
    """A job's timeline: where its figure is, the zooms, the legend.

    ``recoveries`` are apart from ``presets`` where they are too many for buttons. ``tall``: it
    scrolls, the newest attempt first in view. ``removed`` says in a sentence why there is no
    figure, '' where there is one.
    """

    src: str
    height: int
    tall: bool
    attempts: int
    presets: tuple[Preset, ...]
    recoveries: tuple[Preset, ...]
    groups: tuple[Group, ...]
    marks: Marks
    removed: str


def timeline_of(
    result: Mapping[str, Any],
    clock: Clock,
    job: str,
    *,
    of: Mapping[str, str] | None = None,
    components: Components = COMPONENTS,
    removed: bool = False,
    keep_days: int | None = None,
) -> TimelineView:
    """Return the view of a job by its result (``JobMetric.as_dict()``).

    ``of`` tells the component of phases that ``components`` do not know. ``removed``: its raw
    events are gone, after ``keep_days`` where that is known.
    """
    factor, _ = scale(top(result))
    attempts = result["attempts"]
    presets = [_preset(one, clock, factor, len(attempts)) for one in moments(result)]
    many = len(presets) - 2 > _BUTTONS
    query = urlencode({"job": job, "as_of": result["end_ns"]})
    return TimelineView(
        src=f"../timeline/{quote(result['dag_id'], safe='')}?{query}",
        height=height(len(attempts)),
        tall=len(attempts) > _TALL,
        attempts=len(attempts),
        presets=tuple(presets[:2] if many else presets),
        recoveries=tuple(presets[2:] if many else ()),
        groups=tuple(legend(result["phases_ns"], of or {}, components)),
        marks=_marks(result),
        removed=removed_text(keep_days) if removed else "",
    )


def removed_text(keep_days: int | None) -> str:
    """Return why there is no figure, in a sentence."""
    after = "" if keep_days is None else f" after {keep_days} days"
    return f"The events were removed{after}; the tables keep the numbers."


def _preset(moment: Moment, clock: Clock, factor: int, attempts: int) -> Preset:
    x = clock.axis(moment.begin_ns), clock.axis(moment.end_ns)
    y = round(moment.low / factor, 4), round(moment.high / factor, 4)
    return Preset(moment.title, x, y, None if moment.row is None else row_px(moment.row, attempts))


def _marks(result: Mapping[str, Any]) -> Marks:
    saves = result["checkpoints"]
    causes = [row["cause"] for row in result["attempts"]]
    return Marks(
        unattributed=result["phases_ns"].get(Phase.UNATTRIBUTED, 0) > 0,
        committed=any(save["committed_ns"] is not None for save in saves),
        uncommitted=any(save["committed_ns"] is None for save in saves),
        failure=any(name is not None and not is_wish(name) for name in causes),
        upload=any(save["upload_ns"] for save in saves),
    )
