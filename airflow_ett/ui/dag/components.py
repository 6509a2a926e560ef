"""The components table: each component's share, its change, and its course over the jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_ett.api.summaries import percent
from airflow_ett.metric import COMPONENTS, Components
from airflow_ett.ui.dag.summary import Summary
from airflow_ett.ui.data import COMPONENT_LABELS, Job

_POINTS = 52
"""Of a sparkline: half as many as its pixels, so that a line is still seen."""


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """One row of the components table.

    ``change`` is in points against the period before; ``good`` says whether it is for the better,
    None below 0.1 points. ``lost`` is in the unit of :attr:`Summary.lost`, None for what is not
    lost. ``history`` is its share per job, oldest first, None without ETT%.
    """

    name: str
    owner: str
    share_pct: float | None
    change: float | None
    good: bool | None
    mean_ns: int | None
    lost: int | None
    history: tuple[float | None, ...]


def component_rows(
    jobs: Sequence[Job],
    now: Summary,
    before: Summary | None,
    components: Components = COMPONENTS,
    *,
    held: bool = False,
) -> list[ComponentRow]:
    """Return the seven rows of the components table in stack order, on the clock of ``now``."""
    measures = [job.on(held=held) if job.measured else None for job in jobs]
    rows = []
    for name in COMPONENT_LABELS:
        change = _change(name, now, before)
        history = [percent(one.parts_ns[name], one.whole_ns) if one else None for one in measures]
        rows.append(
            ComponentRow(
                name=name,
                owner=components[name].owner,
                share_pct=now.share_pct(name),
                change=change,
                good=_is_good(name, change),
                mean_ns=now.mean_ns[name] if now.measured else None,
                lost=now.lost_parts[name] if now.measured and name != "effective" else None,
                history=tuple(thinned(history)),
            )
        )
    return rows


def thinned(values: Sequence[float | None], most: int = _POINTS) -> list[float | None]:
    """Return at most ``most`` values (an even number) that draw the same line.

    Of neighbours that share a pixel only the least and the largest stay, in their order; None stays
    where none is known.
    """
    if len(values) <= most:
        return list(values)
    size = -(-len(values) // (most // 2))
    return [
        value
        for begin in range(0, len(values), size)
        for value in _extremes(values[begin : begin + size])
    ]


def _extremes(values: Sequence[float | None]) -> Iterator[float | None]:
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    if not known:
        yield None
        return
    for place in sorted({min(known)[1], max(known)[1]}):
        yield values[place]


def _change(name: str, now: Summary, before: Summary | None) -> float | None:
    share = now.share_pct(name)
    share_before = before.share_pct(name) if before else None
    return share - share_before if share is not None and share_before is not None else None


def _is_good(name: str, change: float | None) -> bool | None:
    if change is None or abs(change) < 0.1:
        return None
    return (change > 0) == (name == "effective")
