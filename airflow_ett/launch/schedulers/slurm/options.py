"""The run options of the ``slurm`` scheduler, and what ``sbatch`` is told of them."""

from __future__ import annotations

from dataclasses import dataclass

from torchx.schedulers.api import StructuredOpts
from torchx.specs import Resource, runopts


@dataclass
class Opts(StructuredOpts):  # type: ignore[misc]
    """Run options of ``slurm``."""

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
    """Seconds between SIGTERM and the end when an app is cancelled."""


RUN_OPTIONS: runopts = Opts.as_runopts()
"""Made once: TorchX reads them from the source, which is slow and not safe in threads."""

_PASSED_ON = ("partition", "account", "qos", "time", "constraint", "nodelist", "exclude", "comment",
              "mail_type", "mail_user")  # fmt: skip


def sbatch_options(cfg: Opts, resource: Resource, nodes: int) -> list[str]:
    """Return what ``sbatch`` is asked for."""
    wishes = [(name, getattr(cfg, name)) for name in _PASSED_ON]
    wishes += [
        ("nodes", nodes),
        ("ntasks-per-node", 1),
        ("cpus-per-task", resource.cpu if resource.cpu > 0 else None),
        ("mem", cfg.mem or (f"{resource.memMB}M" if resource.memMB > 0 else None)),
        ("gres", cfg.gres or (f"gpu:{resource.gpu}" if resource.gpu > 0 else None)),
    ]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in wishes if value is not None]
    if cfg.requeue is not None:
        options.append("--requeue" if cfg.requeue else "--no-requeue")
    return options
