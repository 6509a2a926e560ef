"""What all charts share. A figure is plain plotly JSON, made by a pure function.

A colour is a token (``"$ett-wasted"``) that the page resolves when it draws, so that one figure
serves both themes. Plotly reads markup in every text: what a user named goes through :func:`plain`.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from typing import Any

from airflow_ett.metric.phases import COMPONENTS
from airflow_ett.ui.data import COMPONENT_TOKENS
from airflow_ett.ui.words import isolated

Figure = dict[str, Any]
HATCH = {"shape": "/", "fgcolor": "$bg", "fillmode": "overlay", "size": 5, "solidity": 0.28}
"""The pattern of ``unattributed``, beside the colour as ``bgcolor``."""

_TURNS = frozenset({"R", "AL", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"})

_PHASES = frozenset(phase for part in COMPONENTS.values() for phase in part.phases)
"""Those with a colour of their own in ``palette.css``."""


def phase_token(phase: str, component: str) -> str:
    """Return a phase's colour token: its own, else its component's, else unattributed's."""
    if phase in _PHASES:
        return f"ph-{phase}"
    return f"ett-{COMPONENT_TOKENS.get(component, 'unattributed')}"


def plain(name: str) -> str:
    """Return the name such that plotly shows it and reads no markup in it (it knows no quotes).

    One that is written from the right, or turns the text around, leaves what follows it alone.
    """
    text = html.escape(name, quote=False)
    turns = any(unicodedata.bidirectional(character) in _TURNS for character in text)
    return isolated(text) if turns else text


def component_marker(token: str) -> Figure:
    """Return the marker of a component's bars: its colour, hatched where unattributed."""
    marker: Figure = {"color": f"$ett-{token}", "line": {"width": 0}}
    if token == "unattributed":
        marker["pattern"] = {**HATCH, "bgcolor": marker["color"]}
    return marker


def spark_segments(
    values: Sequence[float | None],
    width: int = 104,
    height: int = 20,
    scale: tuple[float, float] | None = None,
    places: Sequence[int] | None = None,
    count: int | None = None,
) -> list[list[tuple[float, float]]]:
    """Return the polylines of a sparkline in pixels; a gap where a value is unknown.

    ``scale`` are the values at its foot and at its head, by default the least and the largest.
    ``places`` says where, of ``count`` places, the values stand: by default they fill them all.
    """
    known = [value for value in values if value is not None]
    low, high = scale or (min(known, default=0.0), max(known, default=0.0))
    span = (high - low) or 1.0
    segments: list[list[tuple[float, float]]] = [[]]
    last = max(1, (count or len(values)) - 1)
    for place, value in zip(places or range(len(values)), values, strict=True):
        if value is None:
            segments.append([])
            continue
        x = 2 + place * (width - 4) / last
        y = height - 2 - (value - low) / span * (height - 4)
        segments[-1].append((round(x, 1), round(y, 1)))
    return [segment for segment in segments if segment]
