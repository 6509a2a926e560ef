"""What a scheduler supports, told from its interfaces alone, whoever's it is.

What TorchX's interface leaves open is unknown (None), not false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torchx.schedulers.api import Scheduler
from torchx.workspace import WorkspaceMixin

from airflow_ett.launch.abilities import AvoidsHosts, Detailed, KeepsOutput, Names, Reachable


@dataclass(frozen=True, slots=True)
class Supports:
    """What one scheduler supports; None is unknown.

    ``package`` is whose it is. ``exit_codes``: it tells how replicas ended, and why; ``requeues``:
    apps that it starts again are seen as attempts; ``avoids_hosts``: a relaunch stays away from
    hosts that were lost; ``workspaces``: it takes one along. ``output`` is read from any offset,
    directly, or through TorchX from its first line, or not at all. ``ids_are_names``: an app is
    found under its name, so that a submit may be repeated; the others are looked through for it.
    """

    package: str
    exit_codes: bool | None
    requeues: bool | None
    avoids_hosts: bool
    workspaces: bool
    output: Literal["direct", "torchx", "none"]
    ids_are_names: bool


def supports(backend: Scheduler) -> Supports:
    """Return what a scheduler supports."""
    details = True if isinstance(backend, Detailed) else None
    return Supports(
        package=type(backend).__module__.partition(".")[0],
        exit_codes=details,
        requeues=details,
        avoids_hosts=isinstance(backend, AvoidsHosts),
        workspaces=isinstance(backend, WorkspaceMixin),
        output=_output(backend),
        ids_are_names=isinstance(backend, Names),
    )


def reach(backend: Scheduler, cfg: Mapping[str, Any]) -> None:
    """Ask a scheduler whether it is there, in its own way if it has one. Raises what it raises."""
    if isinstance(backend, Reachable):
        backend.reach(cfg)
    else:
        backend.list()


def _output(backend: Scheduler) -> Literal["direct", "torchx", "none"]:
    if isinstance(backend, KeepsOutput):
        return "direct"
    return "none" if type(backend).log_iter is Scheduler.log_iter else "torchx"
