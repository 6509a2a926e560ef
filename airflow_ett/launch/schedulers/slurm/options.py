"""The run options of the ``slurm`` scheduler, and what ``sbatch`` is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx.schedulers.api import StructuredOpts
from torchx.specs import InvalidRunConfigException, Resource, runopts

from airflow_ett.launch.schedulers.slurm.values import problem


@dataclass
class Opts(StructuredOpts):  # type: ignore[misc]
    """Run options of ``slurm``."""

    ssh_conn_id: str | None = None
    """Airflow's SSH connection to a login node of the cluster; default: Slurm's commands are run on
    the machine of the worker or triggerer."""

    partition: str | None = None
    """Partition to run in; default: the cluster's."""

    account: str | None = None
    """Account to charge."""

    qos: str | None = None
    """Quality of service."""

    time: str | None = None
    """Longest run time, such as 90 (minutes), 12:00:00 or 7-00; default: the partition's."""

    constraint: str | None = None
    """Features that nodes must have."""

    nodelist: str | None = None
    """Nodes that must be among the app's."""

    exclude: str | None = None
    """Nodes that must not be."""

    exclude_failed_nodes: bool = True
    """Whether nodes on which a training was lost before are excluded, too, as far as it can run
    without them and nodelist does not name them."""

    failed_nodes: str | None = None
    """Those nodes, the latest first: filled in when a training is launched again."""

    reservation: str | None = None
    """Reservation to run in."""

    exclusive: bool = False
    """Whether no other job may share the nodes."""

    gres: str | None = None
    """Generic resources per node, such as gpu:a100:8; default: as many gpu as the role asks for."""

    mem: str | None = None
    """Memory per node, such as 64G, or 0 for all; default: what the role asks for."""

    comment: str | None = None
    """A comment on the job."""

    mail_type: str | None = None
    """Events of which Slurm sends a mail, such as END,FAIL."""

    mail_user: str | None = None
    """Who gets it."""

    requeue: bool | None = None
    """Whether Slurm starts the job again after preemption or a node's failure; default: the
    cluster's JobRequeue."""

    setup: str | None = None
    """Shell lines that each node runs before the app, such as module load cuda."""

    cwd: str | None = None
    """Folder in which replicas run; default: the role's image if that is an absolute path, else
    the app's own."""

    grace_s: int = 30
    """Seconds between SIGTERM and the end when an app is cancelled, and before its time limit."""


class _RunOptions(runopts):  # type: ignore[misc]
    """Run options whose values are checked, as far as that goes without a cluster."""

    def resolve(self, cfg: Mapping[str, Any], *, ignore_unknown: bool = False) -> dict[str, Any]:
        """Return ``cfg`` over the defaults. Raises ``InvalidRunConfigException``."""
        resolved: dict[str, Any] = super().resolve(cfg, ignore_unknown=ignore_unknown)
        if found := problem(resolved):
            raise InvalidRunConfigException(found[1], found[0], cfg)
        return resolved


def _run_options() -> runopts:
    options = _RunOptions()
    for name, option in Opts.as_runopts():
        options.add(name, type_=option.opt_type, default=option.default, help=option.help)
    return options


RUN_OPTIONS: runopts = _run_options()
"""Made once: TorchX reads them from the source, which is slow and not safe in threads."""

_PASSED_ON = ("partition", "account", "qos", "time", "constraint", "nodelist", "reservation",
              "comment", "mail_type", "mail_user")  # fmt: skip

_LONGEST_S = 65535
"""Slurm tells of a time limit no sooner."""


def sbatch_options(cfg: Opts, resource: Resource, nodes: int, grace_s: int) -> list[str]:
    """Return what ``sbatch`` is asked for, but for nodes to be excluded.

    The batch script is told of the time limit ``grace_s`` seconds before.
    """
    wishes = [(name, getattr(cfg, name)) for name in _PASSED_ON]
    wishes += [
        ("nodes", nodes),
        ("ntasks-per-node", 1),
        ("cpus-per-task", resource.cpu if resource.cpu > 0 else None),
        ("mem", cfg.mem or (f"{resource.memMB}M" if resource.memMB > 0 else None)),
        ("gres", cfg.gres or (f"gpu:{resource.gpu}" if resource.gpu > 0 else None)),
        ("signal", f"B:HUP@{min(grace_s, _LONGEST_S)}"),
    ]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in wishes if value is not None]
    if cfg.exclusive:
        options.append("--exclusive")
    if cfg.requeue is not None:
        options.append("--requeue" if cfg.requeue else "--no-requeue")
    return options
