"""How long trainers get between SIGTERM and SIGKILL: what a component asks for, who grants less.

A component's promise must be kept by every layer above the trainer: by our agent, and by the
scheduler that would kill the agent. A scheduler that takes a role's wish gets it in the role's
metadata; of the others it is known what they grant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torchx.specs import AppDef, Role
from torchx.specs.overlays import set_overlay

from airflow_ett.launch.schedulers.local_detached import GRACE_KEY, NAME

TORCHRUN_S = 30.0
"""What torchrun gives its workers; its components offer no option for it."""

_ASKED_KEY = "ett/grace_s"

_AGENT_S = 5
"""The agent needs time to write its reply after its workers have used up theirs."""


class _Layer(NamedTuple):
    """What a scheduler grants unless its cluster is set otherwise, in seconds, and by what name."""

    grants_s: float
    setting: str


# See slurm.conf(5).
_LAYERS = {"slurm": _Layer(30, "KillWait in slurm.conf")}


def ask(role: Role, grace_s: float) -> None:
    """Have a role's trainers get ``grace_s`` seconds, wherever a scheduler can be told.

    Raises ``ValueError`` where that is no time.
    """
    if grace_s < 0:
        raise ValueError(f"grace_s: {grace_s} seconds are no time to give")
    role.metadata[_ASKED_KEY] = grace_s
    role.metadata[GRACE_KEY] = grace_s + _AGENT_S
    pod = {"spec": {"terminationGracePeriodSeconds": grace_s + _AGENT_S}}
    set_overlay(role, "kubernetes", "V1Pod", pod)


def asked(app: AppDef) -> float | None:
    """Return the seconds that a component asked for, None where it did not."""
    wishes = [role.metadata[_ASKED_KEY] for role in app.roles if _ASKED_KEY in role.metadata]
    return max(map(float, wishes), default=None)


def shortfall(app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> str | None:
    """Return in a sentence which layer grants less than was asked for, None where none does."""
    if scheduler == NAME and (text := _less_than_cfg(app, cfg)):
        return text
    wanted, layer = asked(app), _LAYERS.get(scheduler)
    if wanted is None or layer is None or layer.grants_s >= wanted:
        return None
    return (
        f"Trainers are to get {wanted:g} s between SIGTERM and SIGKILL (grace_s), but {scheduler} "
        f"grants {layer.grants_s:g} s unless this cluster is set otherwise ({layer.setting}): a "
        "last checkpoint that takes longer would be lost. Have that setting raised, or save faster "
        "and lower grace_s."
    )


def _less_than_cfg(app: AppDef, cfg: Mapping[str, Any]) -> str | None:
    wanted, given = asked(app), float(cfg.get("grace_s") or 0)
    if wanted is None or wanted >= given:
        return None
    return (
        f"{NAME} grants {given:g} s between SIGTERM and SIGKILL (cfg, grace_s), but the component "
        f"gives its trainers {wanted:g} s of them: set --grace_s in component_args."
    )
