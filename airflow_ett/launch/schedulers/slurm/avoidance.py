"""Keeping an app away from the hosts on which it was lost, as far as it can run without them. Pure.

The launcher fills ``failed_nodes`` in, the latest loss first. A host of the user's own ``nodelist``
is never among them. Slurm itself knows how many nodes a job may do without: as long as it refuses
the job for them, the earliest loss is forgiven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_ett.launch.schedulers.slurm.hostlist import expand
from airflow_ett.launch.schedulers.slurm.values import is_file, is_host

_REFUSALS = ("Requested node configuration is not available", "Invalid node name specified")
"""What ``sbatch`` says where too few nodes are left, and where one is none of the cluster's."""


def avoiding(cfg: Mapping[str, Any], hosts: Sequence[str]) -> Mapping[str, Any]:
    """Return ``cfg`` with ``hosts`` as those on which the app was lost, unless it forbids that."""
    asked, excluded = str(cfg.get("nodelist") or ""), str(cfg.get("exclude") or "")
    if cfg.get("exclude_failed_nodes") is False or is_file(asked) or is_file(excluded):
        return cfg
    known = {*expand(asked), *expand(excluded)}
    failed = [host for host in hosts if is_host(host) and host not in known]
    return {**cfg, "failed_nodes": ",".join(failed)} if failed else cfg


def exclusions(exclude: str | None, failed: str | None) -> Iterator[str | None]:
    """Yield what to exclude, each time one host less; at last what the user excludes, or None."""
    hosts = failed.split(",") if failed else []
    for count in range(len(hosts), -1, -1):
        yield ",".join(filter(None, [exclude, *hosts[:count]])) or None


def refuses_hosts(said: str) -> bool:
    """Tell whether ``sbatch`` refused a job for its nodes."""
    return any(text in said for text in _REFUSALS)
