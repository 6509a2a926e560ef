"""The phases, the component each belongs to, and who owns that component (Level 2)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_ett.config import Settings
from airflow_ett.errors import ConfigurationError


class Phase(StrEnum):
    """The phases that the metric itself names; trainers may bring others."""

    QUEUE = "queue"
    HARDWARE_SETUP = "hardware_setup"
    RETRY_WAIT = "retry_wait"
    LAUNCHER_INIT = "launcher_init"
    TRAINER_INIT = "trainer_init"
    FIRST_BATCH = "first_batch"
    TRAIN = "train"
    REPLAY = "replay"
    DATA_WAIT = "data_wait"
    LOOP_OTHER = "loop_other"
    STALLED = "stalled"
    FAILURE_DETECTION = "failure_detection"
    SHUTDOWN = "shutdown"
    UNATTRIBUTED = "unattributed"


RESERVED = frozenset({Phase.TRAIN, Phase.REPLAY, Phase.UNATTRIBUTED})
"""Phases that follow from the cursor or from silence; nobody may open them by name."""


_FIXED = frozenset({"effective", "unattributed"})
"""Components that hold what the cursor proves and what nothing proves, and no more."""


@dataclass(frozen=True, slots=True)
class Component:
    """Who owns a component, and its phases."""

    owner: str
    phases: tuple[str, ...]


class Components(Mapping[str, Component]):
    """Component -> its owner and phases, in the order in which they are shown. Immutable.

    A phase that stands in none is named by a prefix: ``<prefix>.<rest>`` belongs to the component
    that the prefix names, by its own name or by that of a phase of it, the longest prefix first.
    """

    __slots__ = ("_of", "_parts")

    def __init__(self, parts: Mapping[str, Component]) -> None:
        self._parts = dict(parts)
        self._of = {phase: name for name, part in parts.items() for phase in part.phases}

    def __getitem__(self, component: str) -> Component:
        return self._parts[component]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __hash__(self) -> int:
        return hash(frozenset(self._parts.items()))

    def __repr__(self) -> str:
        return f"Components({self._parts!r})"

    @property
    def digest(self) -> str:
        """Two mappings have the same exactly if each phase has the same component in both."""
        pairs = json.dumps(sorted(self._of.items()))
        return hashlib.sha256(pairs.encode()).hexdigest()[:16]

    def of(self, phase: str, *, in_loop: bool = True) -> str:
        """Return the component of ``phase``.

        One that nothing names counts as ``wasted`` in the training loop, as ``trainer_init`` before
        it.
        """
        return self._named(phase) or ("wasted" if in_loop else "trainer_init")

    def knows(self, phase: str) -> bool:
        """Say whether ``phase`` stands in a component or a prefix of it names one."""
        return self._named(phase) is not None

    def changed(
        self, *, owners: Mapping[str, str] | None = None, phases: Mapping[str, str] | None = None
    ) -> Components:
        """Return these components with other owners, and with phases moved or added to one.

        ``owners`` maps components to owners, ``phases`` phases to components. Raises
        :class:`ConfigurationError` that names the ``[ett]`` option: for a component that does not
        exist, and where ``effective`` or ``unattributed`` would lose or gain a phase, since the
        formula needs them as they are.
        """
        owners, phases = owners or {}, phases or {}
        for component in owners:
            self._check_component("component_owners", component)
        for phase, component in phases.items():
            self._check_component("phase_components", component)
            here = self._of.get(phase)
            if here != component and not _FIXED.isdisjoint((here, component)):
                fixed = here if here in _FIXED else component
                problem = f"{phase}={component}: {fixed} neither loses nor gains a phase"
                raise ConfigurationError("[ett] phase_components", problem)
        parts = {}
        for name, part in self.items():
            kept = [phase for phase in part.phases if phases.get(phase, name) == name]
            kept += [phase for phase, to in phases.items() if to == name and phase not in kept]
            parts[name] = Component(owners.get(name, part.owner), tuple(kept))
        return Components(parts)

    def _named(self, phase: str) -> str | None:
        if phase in self._of:
            return self._of[phase]
        prefix = phase
        while "." in prefix:
            prefix = prefix.rpartition(".")[0]
            named = prefix if prefix in self._parts else self._of.get(prefix)
            if named is not None and named not in _FIXED:
                return named
        return None

    def _check_component(self, option: str, component: str) -> None:
        if component not in self._parts:
            allowed = ", ".join(self._parts)
            problem = f"there is no component {component!r}; the components are {allowed}"
            raise ConfigurationError(f"[ett] {option}", problem)


COMPONENTS = Components(
    {
        "scheduling": Component("cluster", ("queue", "hardware_setup", "retry_wait")),
        "trainer_init": Component(
            "training-framework",
            (
                "launcher_init",
                "device_init",
                "process_group_init",
                "preproc_creation",
                "train_module_creation",
                "init_plugins",
                "pre_train",
                "first_batch",
                "checkpoint_restore",
                "trainer_init",
            ),
        ),
        "pt2_compile": Component("compiler", ("compile", "compile_cache_load")),
        "effective": Component("model", ("train",)),
        "wasted": Component(
            "checkpointing",
            (
                "replay",
                "checkpoint_save",
                "data_wait",
                "evaluation",
                "loop_other",
                "stalled",
                "failure_detection",
            ),
        ),
        "shutdown": Component("publishing", ("shutdown", "publish")),
        "unattributed": Component("", ("unattributed",)),
    }
)
"""The default components."""


def configured(settings: Settings) -> Components:
    """Return the default components as ``[ett]`` options change them.

    Raises :class:`ConfigurationError` that names the option.
    """
    return COMPONENTS.changed(owners=settings.component_owners, phases=settings.phase_components)
