"""The run options of the ``kubernetes`` scheduler: TorchX's own, and some of ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.schedulers.api import StructuredOpts
from torchx.schedulers.kubernetes_scheduler import RESERVED_MEMMB, RESERVED_MILLICPU
from torchx.specs import runopts

from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.schedulers.kubernetes import EXTRA


@dataclass
class Opts(StructuredOpts):  # type: ignore[misc]
    """Run options of ``kubernetes``."""

    queue: str = "default"
    """Queue of Volcano to wait in."""

    namespace: str = "default"
    """Namespace to run in."""

    service_account: str | None = None
    """Service account of the pods; default: the namespace's."""

    priority_class: str | None = None
    """Priority class of the job and its pods."""

    requeue: bool = False
    """Whether Volcano starts the job again when a pod is taken away, by preemption or with its
    node; default: it is relaunched from here."""

    pod: dict | None = None  # type: ignore[type-arg]
    """Changes to the pod template, as its YAML has them: metadata and spec; a container without a
    name is the trainer's."""

    avoid_nodes: list[str] | None = None
    """Nodes that must not be used, by name."""

    reserved_millicpu: int = RESERVED_MILLICPU
    """Millicores that are asked for less than the component's cpu: nodes keep some."""

    reserved_memmb: int = RESERVED_MEMMB
    """MB of memory that are asked for less than the component's memMB."""

    efa_device_count: int | None = None
    """EFA devices per pod; default: what the resource says, 0 for none."""

    validate_spec: bool = False
    """Whether the API server checks the request once more before it is made."""


RUN_OPTIONS: runopts = Opts.as_runopts()
"""Made once: TorchX reads them from the source, which is slow and not safe in threads."""


def check(cfg: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigurationError` where a value cannot be right, whatever runs with it.

    ``cfg`` need not be complete. Nothing is sent anywhere.
    """
    if importlib.util.find_spec("kubernetes") is None:
        raise ConfigurationError("scheduler", f"kubernetes needs a package: install {EXTRA}")
    for problem in problems(cfg):
        raise ConfigurationError("cfg", problem)


def problems(cfg: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the values of ``cfg``, each by its option's name."""
    from airflow_ett.launch.schedulers.kubernetes.schema import name_problem, template_problems

    names = ("queue", "namespace", "service_account", "priority_class")
    found = [name_problem(f"{name}:", str(cfg[name])) for name in names if cfg.get(name)]
    pod = cfg.get("pod") or {}
    wrong = [f"pod: {problem}" for problem in template_problems(pod)]
    found += wrong or [f"pod: {place}: no pod can be without" for place in _removed(pod)]
    return [problem for problem in found if problem]


def _removed(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a patch would remove that must be there."""
    for part, inner in (("metadata", "labels"), ("spec", "containers")):
        if part in pod and pod[part] is None:
            yield part
        elif isinstance(pod.get(part), Mapping) and pod[part].get(inner, ()) is None:
            yield f"{part}.{inner}"


def avoiding(cfg: Mapping[str, Any], hosts: Sequence[str]) -> dict[str, Any]:
    """Return run options by which none of ``hosts`` is used, and none that ``cfg`` leaves out."""
    return {**cfg, "avoid_nodes": list(dict.fromkeys([*(cfg.get("avoid_nodes") or ()), *hosts]))}
