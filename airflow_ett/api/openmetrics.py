"""The text that a scraper reads: OpenMetrics 1.0, or Prometheus' older format. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

OPEN = "application/openmetrics-text"
OPEN_TYPE = f"{OPEN}; version=1.0.0; charset=utf-8"
PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECOND = 10**9


@dataclass(slots=True)
class Family:
    """One metric with its samples; a counter's name bears no ``_total``."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    unit: str = ""
    samples: list[tuple[Mapping[str, str], str]] = field(default_factory=list)

    def add(self, value: str | int, **labels: str) -> None:
        """Add a sample."""
        self.samples.append((labels, str(value)))


def render(families: Iterable[Family], *, open_: bool) -> str:
    """Return the exposition, in OpenMetrics if ``open_``."""
    lines: list[str] = []
    for family in families:
        sample = f"{family.name}_total" if family.kind == "counter" else family.name
        name = family.name if open_ else sample
        lines.append(f"# TYPE {name} {family.kind}")
        if open_ and family.unit:
            lines.append(f"# UNIT {name} {family.unit}")
        lines.append(f"# HELP {name} {_escaped(family.help)}")
        lines += [f"{sample}{_labels(labels)} {value}" for labels, value in family.samples]
    return "\n".join([*lines, "# EOF", ""])


def seconds(ns: int) -> str:
    """Return nanoseconds as exact seconds."""
    return f"{ns // _SECOND}.{ns % _SECOND:09d}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
