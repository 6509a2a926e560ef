"""The figures of a run, and of several runs of a row: medians with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, NamedTuple

from ablation.pace import at_pace

_NS = 1_000_000_000
_COMPILE = ("compile", "compile_cache_load")


class Figures(NamedTuple):
    """What table 1 shows of a run, in seconds and percent."""

    tts: float
    ttr: float
    compile_first: float
    compile_restart: float
    blocking: float
    repeated: float
    shutdown: float
    train: float
    wall: float
    ett: float
    paced: float


COLUMNS = (
    "TTS s",
    "TTR s",
    "compile s, first",
    "restarts",
    "blocking s",
    "repeated s",
    "shutdown s",
    "train s",
    "wall s",
    "ETT%",
    "at one pace",
)


def figures(result: Mapping[str, Any], effective_ns: int) -> Figures:
    """Return a run's figures; TTR and the compilation of restarts are means over them.

    Compiling is what the training waited for, the loading of a cache included. Blocking is all that
    saves kept the training waiting, the last one included; repeated is what was trained twice.
    ``paced`` is ETT% if training on new data had taken ``effective_ns``.
    """
    phases = result["phases_ns"]
    first, *restarts = [
        sum(attempt["phases_ns"].get(phase, 0) for phase in _COMPILE)
        for attempt in result["attempts"]
    ]
    return Figures(
        tts=result["tts_ns"] / _NS,
        ttr=_mean([recovery["ns"] for recovery in result["ttr"]]) / _NS,
        compile_first=first / _NS,
        compile_restart=_mean(restarts) / _NS,
        blocking=phases.get("checkpoint_save", 0) / _NS,
        repeated=phases.get("replay", 0) / _NS,
        shutdown=result["levels_ns"]["shutdown"] / _NS,
        train=result["effective_ns"] / _NS,
        wall=result["wall_ns"] / _NS,
        ett=result["ett_pct"],
        paced=at_pace(result, effective_ns)["ett_pct"],
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of repeated runs."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.values)

    def overlaps(self, other: Spread) -> bool:
        """Say whether the two ranges have a value in common."""
        return min(self.values) <= max(other.values) and min(other.values) <= max(self.values)

    def __str__(self) -> str:
        low, high = (f"{value:.1f}" for value in (min(self.values), max(self.values)))
        middle = f"{self.median:.1f}"
        return middle if low == high else f"{middle} ({low}–{high})"


def spreads(results: Sequence[Mapping[str, Any]], effective_ns: int) -> dict[str, Spread]:
    """Return each figure over the runs of a row, by the names of :class:`Figures`."""
    columns = zip(*(figures(result, effective_ns) for result in results), strict=True)
    return {name: Spread(values) for name, values in zip(Figures._fields, columns, strict=True)}


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else 0.0
