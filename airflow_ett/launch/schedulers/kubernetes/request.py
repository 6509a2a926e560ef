"""What the API server is asked for an app: TorchX's Volcano job under our name, and a Secret.

TorchX renders the job. What it does not do is added here: the app's name is the job's; a pod that
fails or is taken away ends the whole app, whose trainers cannot go on without it; the environment
lies in a Secret, which a job's reader need not be allowed to read; and arguments arrive as they
are, though Kubernetes would fill in what looks like its variables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.schedulers.kubernetes_scheduler import app_to_resource, sanitize_for_serialization
from torchx.specs import AppDef, Role
from torchx.util.strings import normalize_str

from airflow_ett.config import JOB_VARIABLE, RESTART_VARIABLE
from airflow_ett.errors import EventLogError
from airflow_ett.events import JobContext
from airflow_ett.launch.schedulers.kubernetes.answers import RETRY_ANNOTATION, ROLE_LABEL
from airflow_ett.launch.schedulers.kubernetes.api import APP_LABEL, Thing
from airflow_ett.launch.schedulers.kubernetes.options import Opts
from airflow_ett.launch.schedulers.kubernetes.patch import patched
from airflow_ett.launch.schedulers.kubernetes.schema import (
    LONGEST_NAME,
    name_problem,
    template_problems,
)
from airflow_ett.launch.schedulers.local_detached import GRACE_KEY

KEPT_S = 7 * 24 * 3600
"""So long after its end a job is kept, with its pods' output; then Volcano removes it."""

_RESTARTS = 100
"""How often Volcano may start a job again that pods are taken from."""

_MOST_BYTES = 1_400_000
"""A job's size: etcd takes 1.5 MiB in one request, and Volcano adds some."""

_MOST_SECRET_BYTES = 1_000_000
"""An environment's size: a Secret has room for 1 MiB."""

_DEFAULT_GRACE_S = 30
"""What Kubernetes grants a pod that does not say."""


@dataclass(frozen=True, slots=True)
class Request:
    """An app as it is handed over."""

    app: str
    namespace: str
    job: Thing
    secret: Thing
    images: Mapping[str, tuple[str, str]]


def task_name(role: str, replica: int) -> str:
    """Return what TorchX calls a replica: its task's name, and its container's."""
    return str(normalize_str(f"{role}-{replica}"))


def render(app: AppDef, cfg: Opts, images: Mapping[str, tuple[str, str]]) -> Request:
    """Return the request for an app; ``images`` are to be pushed before."""
    job = _named(_by_torchx(app, cfg), app.name)
    labels, notes = _marks(app)
    variables: dict[str, str] = {}
    tasks = job["spec"]["tasks"]
    for task in tasks:
        template = task["template"]
        container = template["spec"]["containers"][0]
        container["command"] = [part.replace("$", "$$") for part in container["command"]]
        container["env"] = [_from_secret(app.name, task, each, variables) for each in
                            container.get("env") or ()] + [_RESTART]  # fmt: skip
        template = patched(template, cfg.pod or {})
        template["metadata"]["labels"] |= labels
        _keep_away(template["spec"], cfg.avoid_nodes or ())
        task["template"] = template
    job["metadata"] |= {"labels": labels, "annotations": notes}
    job["spec"] |= _life(app, cfg)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": app.name, "labels": labels},
        "type": "Opaque",
        "stringData": variables,
    }
    return Request(app.name, cfg.namespace, job, secret, images)


def request_problems(request: Request, roles: Sequence[Role]) -> Iterator[str]:
    """Yield why the API server would not take a request, or not do what was promised."""
    if problem := name_problem("app", request.app):
        yield problem
    tasks = request.job["spec"]["tasks"]
    for task in tasks:
        if problem := name_problem("pod", f"{request.app}-{task['name']}-0"):
            yield f"{problem}: shorten the role's name"
    firsts = {task["template"]["metadata"]["labels"].get(ROLE_LABEL): task for task in tasks}
    for task in firsts.values():  # a role's differ by number alone
        for problem in template_problems(task["template"]):
            yield f"pod: {problem}"
        if (policy := task["template"]["spec"].get("restartPolicy", "Never")) != "Never":
            yield (
                f"pod: spec.restartPolicy: {policy} would have kubelets start a training again, "
                "beside Volcano and this package: leave it Never"
            )
        granted = task["template"]["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
        wanted = max((float(role.metadata.get(GRACE_KEY, 0)) for role in roles), default=0)
        if isinstance(granted, int) and granted < wanted:
            yield (
                f"pod: spec.terminationGracePeriodSeconds: {granted} is less than the {wanted:g} s "
                "that the trainers are promised between SIGTERM and SIGKILL (grace_s)"
            )
    for what, thing, most in (
        ("job", request.job, _MOST_BYTES),
        ("environment", request.secret, _MOST_SECRET_BYTES),
    ):
        if (size := len(json.dumps(thing).encode())) > most:
            yield f"the {what} has {size} bytes; Kubernetes takes about {most}"


def _by_torchx(app: AppDef, cfg: Opts) -> Thing:
    rendered = app_to_resource(
        app,
        cfg.queue,
        cfg.service_account,
        cfg.priority_class,
        cfg.reserved_millicpu,
        cfg.reserved_memmb,
        cfg.efa_device_count,
    )
    plain: Thing = sanitize_for_serialization(rendered)
    return plain


def _named(job: Thing, name: str) -> Thing:
    """Return a job with ``name`` where TorchX has written one with a random end."""
    made_up = job["metadata"]["name"]
    named: Thing = json.loads(json.dumps(job).replace(made_up, name))
    return named


def _marks(app: AppDef) -> tuple[dict[str, str], dict[str, str]]:
    """Return labels and annotations by which people find an app's job and pods."""
    labels, notes = {APP_LABEL: app.name, "app.kubernetes.io/managed-by": "airflow-ett"}, {}
    for role in app.roles[:1]:
        try:
            context = JobContext.decode(role.env.get(JOB_VARIABLE, ""))
        except EventLogError:
            break  # an app that no job of ours stands behind
        key = context.key
        for name, value in (("deployment", key.deployment), ("dag", key.dag_id),
                            ("task", key.task_id)):  # fmt: skip
            labels[f"airflow-ett/{name}"] = _label(value)
        notes = {"airflow-ett/run": key.run_id, "airflow-ett/submission": str(context.submission)}
    return labels, notes


def _label(text: str) -> str:
    kept = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "-"
                   for each in text)  # fmt: skip
    return kept[:LONGEST_NAME].strip("-_.")


_RESTART = {
    "name": RESTART_VARIABLE,
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{RETRY_ANNOTATION}']"}},
}
"""Tells a trainer how often its job was started again."""


def _from_secret(
    app: str, task: Thing, variable: Thing, variables: dict[str, str]
) -> dict[str, Any]:
    """Return a variable whose value comes from the app's Secret, and put it there."""
    if "valueFrom" in variable:
        return variable
    name, value = variable["name"], str(variable.get("value") or "")
    if variables.setdefault(name, value) == value:
        key = name
    else:
        key = f"{task['name']}.{name}"
        variables[key] = value
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": app, "key": key}}}


def _keep_away(spec: Thing, nodes: Sequence[str]) -> None:
    """Have a pod come to none of these nodes, whatever else it wants of its node."""
    if not nodes:
        return
    away = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    wanted = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in wanted.setdefault("nodeSelectorTerms", [{}]):
        term["matchFields"] = [*term.get("matchFields", ()), *away]


def _life(app: AppDef, cfg: Opts) -> dict[str, Any]:
    """Return what Volcano does when a pod of the app ends.

    TorchX asks for restarts task by task (``max_retries``), which goes before what is asked here.
    """
    life: dict[str, Any] = {"ttlSecondsAfterFinished": KEPT_S}
    retries = max(role.max_retries for role in app.roles)
    if all(role.min_replicas is None for role in app.roles):  # an elastic app goes on with fewer
        taken = "RestartJob" if cfg.requeue else "TerminateJob"
        life["policies"] = [
            {"event": "PodEvicted", "action": taken},
            {"event": "PodFailed", "action": "TerminateJob"},
        ]
    if cfg.requeue or retries:
        life["maxRetry"] = (_RESTARTS if cfg.requeue else retries) + 1  # the last one fails the job
    return life
