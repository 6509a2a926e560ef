"""How a phase is coloured, and the legend of those that a job has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_ett.metric import COMPONENTS, Components, Phase
from airflow_ett.ui.data import COMPONENT_LABELS

_KNOWN = frozenset(phase for part in COMPONENTS.values() for phase in part.phases)
_ALIKE = {
    "scheduling": "hardware_setup",
    "trainer_init": "launcher_init",
    "pt2_compile": "compile",
    "effective": "train",
    "wasted": "replay",
    "shutdown": "shutdown",
    "unattributed": "unattributed",
}
"""Component to the phase whose label stands out best on the component's own colour."""

HATCHED: Mapping[str, tuple[str, int, float]] = {
    Phase.REPLAY: ("\\", 6, 0.22),
    Phase.UNATTRIBUTED: ("/", 5, 0.28),
}
"""Phases drawn with a pattern, not with their names: its shape, size and solidity."""


@dataclass(frozen=True, slots=True)
class Group:
    """The phases of a component that a job has."""

    component: str
    title: str
    phases: tuple[str, ...]


def label_token(phase: str, component: str) -> str:
    """Return the name of the colour in which a phase's name stands on it."""
    return f"on-{phase if phase in _KNOWN else _ALIKE.get(component, 'unattributed')}"


def components_of(rows: Iterable[tuple[str, str, int]]) -> dict[str, str]:
    """Return the component of each phase: of several, the one that has most of its time.

    ``rows`` are phase, component and nanoseconds. Only a phase that nothing names has several.
    """
    sums: dict[tuple[str, str], int] = {}
    for phase, component, ns in rows:
        sums[phase, component] = sums.get((phase, component), 0) + ns
    return dict(sorted(sums, key=lambda key: sums[key]))


def legend(phases: Iterable[str], of: Mapping[str, str], components: Components) -> list[Group]:
    """Return the phases by component, both in the order of the components; unattributed aside."""
    present = set(phases) - {Phase.UNATTRIBUTED}
    found = []
    for name, part in components.items():
        mine = [phase for phase in present if of.get(phase, components.of(phase)) == name]
        known = {phase: at for at, phase in enumerate(part.phases)}
        mine.sort(key=lambda phase: (known.get(phase, len(known)), phase))
        if mine:
            found.append(Group(name, COMPONENT_LABELS[name], tuple(mine)))
    return found
