"""The phases, the component each belongs to, and who owns that component (Level 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


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


@dataclass(frozen=True, slots=True)
class Component:
    """Who owns a component, and its phases."""

    owner: str
    phases: tuple[str, ...]


COMPONENTS: Mapping[str, Component] = MappingProxyType(
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
"""Component -> its default owner and phases, in the order in which they are shown."""

_COMPONENT_OF = {phase: name for name, part in COMPONENTS.items() for phase in part.phases}


def component_of(phase: str, *, in_loop: bool = True) -> str:
    """Return the component of ``phase``.

    A name of the trainer's own counts as ``wasted`` in the training loop, as ``trainer_init``
    before it.
    """
    return _COMPONENT_OF.get(phase, "wasted" if in_loop else "trainer_init")


def is_known(phase: str) -> bool:
    """Say whether ``phase`` stands in :data:`COMPONENTS`."""
    return phase in _COMPONENT_OF
