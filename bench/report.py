"""What every benchmark prints and leaves behind: a table and a file of targets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path("build/bench")


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that the project wants to hold: at most, or at least, ``target``, in ``unit``."""

    name: str
    value: float
    unit: str
    target: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure holds."""
        return self.value >= self.target if self.at_least else self.value <= self.target


def publish(name: str, unit: str, figures: Mapping[str, float], targets: Iterable[Target]) -> None:
    """Print the figures with their ratio to the first, then the targets; write them as JSON."""
    base = next(iter(figures.values()))
    rows = [[label, number(value), f"{value / base:.2f}"] for label, value in figures.items()]
    show(["", unit, "ratio"], rows)
    conclude(name, {"unit": unit, "figures": dict(figures)}, targets)


def publish_table(
    name: str,
    columns: Sequence[str],
    rows: Mapping[str, Sequence[float | None]],
    targets: Iterable[Target],
) -> None:
    """Print rows of figures (None: not measured), then the targets; write them as JSON."""
    show(["", *columns], [[label, *map(number, row)] for label, row in rows.items()])
    figures = {label: dict(zip(columns, row, strict=True)) for label, row in rows.items()}
    conclude(name, {"figures": figures}, targets)


def number(value: float | None) -> str:
    """Return a figure with about three digits; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for first, *rest in [columns, *rows]:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *cells]))


def conclude(name: str, content: dict[str, Any], targets: Iterable[Target]) -> None:
    """Print the targets; write them and ``content`` as JSON."""
    rows = [asdict(target) | {"met": target.met} for target in targets]
    for row in rows:
        word = "met" if row["met"] else "MISSED"
        bound = "at least" if row["at_least"] else "at most"
        print(
            f"{row['name']}: {number(row['value'])} {row['unit']}, "
            f"target {bound} {number(row['target'])}: {word}"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(content | {"targets": rows}, indent=1) + "\n")
