"""What every benchmark prints and leaves behind: a table of ratios and a file of targets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path("build/bench")


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that the project wants to hold: at most ``target``, in ``unit``."""

    name: str
    value: float
    unit: str
    target: float

    @property
    def met(self) -> bool:
        """Whether the figure holds."""
        return self.value <= self.target


def publish(name: str, unit: str, figures: Mapping[str, float], targets: Iterable[Target]) -> None:
    """Print the figures with their ratio to the first, then the targets; write them as JSON."""
    base = next(iter(figures.values()))
    width = max(len(label) for label in figures)
    print(f"{'':{width}}  {unit:>10}  {'ratio':>8}")
    for label, value in figures.items():
        print(f"{label:{width}}  {value:10,.0f}  {value / base:8.2f}")
    rows = [asdict(target) | {"met": target.met} for target in targets]
    for row in rows:
        word = "met" if row["met"] else "MISSED"
        print(
            f"{row['name']}: {row['value']:,.0f} {row['unit']}, target {row['target']:,.0f}: {word}"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = {"unit": unit, "figures": dict(figures), "targets": rows}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
