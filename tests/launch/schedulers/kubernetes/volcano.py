"""A cluster in memory: what Volcano's controller and the kubelets make of a job.

It follows Volcano's own sources: policies of tasks go before those of the job; a job that is
terminated or aborted keeps the pods that have ended and waits for the others; a restart removes
them all and counts. Containers are no processes here: a test says what they do.
"""

from __future__ import annotations

import base64
import copy
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.launch.schedulers.kubernetes import pods as writes
from tests.launch.schedulers.kubernetes.pods import Pod, stamp

Key = tuple[str, str]
Write = Callable[[Pod], None]

_FINISHED = ("Succeeded", "Failed")


@dataclass
class Cluster:
    """``full``: no node has room; ``closed``: nothing leaves the queue; ``lingering``: pods take
    their whole grace to end, which is until :meth:`reap`. ``broken`` keeps an image from nodes.
    ``started`` and ``deleted`` are told of pods.
    """

    namespaces: set[str] = field(default_factory=lambda: {"default", "training"})
    jobs: dict[Key, dict[str, Any]] = field(default_factory=dict)
    pods: dict[Key, Pod] = field(default_factory=dict)
    secrets: dict[Key, dict[str, Any]] = field(default_factory=dict)
    groups: dict[Key, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[Key, list[tuple[int, str]]] = field(default_factory=dict)
    full: bool = False
    closed: bool = False
    lingering: bool = False
    broken: tuple[str, str] | None = None
    started: Callable[[Pod], None] = lambda pod: None
    deleted: Callable[[Pod], None] = lambda pod: None
    lock: Any = field(default_factory=threading.RLock)

    def add_job(self, namespace: str, job: dict[str, Any]) -> dict[str, Any]:
        """Take a job in, and let it come as far as it can."""
        meta = job["metadata"]
        meta |= {"uid": str(uuid.uuid4()), "namespace": namespace, "creationTimestamp": stamp()}
        job["status"] = {"state": {}}
        self.jobs[namespace, meta["name"]] = job
        self._queue(job)
        return job

    def abort(self, namespace: str, name: str) -> None:
        """Somebody has written ``Aborted`` into a job's status."""
        job = self.jobs[namespace, name]
        self._phase(job, "Aborted")
        self._kill(job, keep_ended=True)

    def move(self, namespace: str, name: str) -> None:
        """There is room now: the job gets on."""
        self.full = self.closed = False
        self._queue(self.jobs[namespace, name])

    def end(
        self, namespace: str, name: str, write: Callable[[Pod], None], replica: int = 0
    ) -> None:
        """A pod ends as ``write`` says, and Volcano hears of it."""
        with self.lock:
            job = self.jobs[namespace, name]
            pod = self._pods(job)[replica]
            write(pod)
            failed = pod["status"]["phase"] == "Failed"
            self._react(job, pod, "PodFailed" if failed else "")

    def take(
        self, namespace: str, name: str, write: Callable[[Pod], None], replica: int = 0
    ) -> None:
        """Somebody who writes ``write`` deletes a pod, and Volcano hears of it."""
        with self.lock:
            job = self.jobs[namespace, name]
            pod = self._pods(job)[replica]
            write(pod)
            self._delete(pod)
            self._react(job, pod, "PodEvicted")

    def reap(self, namespace: str, name: str) -> None:
        """The pods that were deleted are gone."""
        with self.lock:
            for pod in self._pods(self.jobs[namespace, name]):
                if "deletionTimestamp" in pod["metadata"]:
                    self.gone(pod)

    def gone(self, pod: Pod) -> None:
        """A pod that was deleted is gone."""
        with self.lock:
            meta = pod["metadata"]
            del self.pods[meta["namespace"], meta["name"]]
            self._sync(self.jobs[meta["namespace"], meta["labels"]["volcano.sh/job-name"]])

    def note(self, namespace: str, pod: str, reason: str, message: str) -> None:
        """Write down an event of a pod."""
        about = {"kind": "Pod", "namespace": namespace, "name": pod}
        said = {"involvedObject": about, "reason": reason, "message": message, "type": "Warning"}
        self.events.append({**said, "lastTimestamp": stamp()})

    def say(self, namespace: str, pod: str, text: str) -> None:
        """A container prints: each line gets its time when it begins."""
        with self.lock:
            lines = self.logs.setdefault((namespace, pod), [])
            for part in text.splitlines(keepends=True):
                if lines and not lines[-1][1].endswith("\n"):
                    lines[-1] = lines[-1][0], lines[-1][1] + part
                else:
                    last_ns = lines[-1][0] if lines else 0
                    lines.append((max(time.time_ns(), last_ns + 1), part))

    def environment(self, namespace: str, pod: str) -> dict[str, str]:
        """Return the environment that a container has. Raises ``KeyError``."""
        return {
            each["name"]: self._value(namespace, self.pods[namespace, pod], each)
            for each in self.pods[namespace, pod]["spec"]["containers"][0].get("env", ())
        }

    def _value(self, namespace: str, pod: Pod, variable: Mapping[str, Any]) -> str:
        source = variable.get("valueFrom", {})
        if reference := source.get("secretKeyRef"):
            secret = self.secrets[namespace, reference["name"]]
            return base64.b64decode(secret["data"][reference["key"]]).decode()
        if reference := source.get("fieldRef"):
            path = reference["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
            return str(pod["metadata"]["annotations"].get(path, ""))
        return expanded(str(variable.get("value", "")), {})

    def _queue(self, job: dict[str, Any]) -> None:
        self._phase(job, "Pending")
        meta = job["metadata"]
        group = {"metadata": {"name": f"{meta['name']}-{meta['uid']}"}, "status": {}}
        self.groups[meta["namespace"], group["metadata"]["name"]] = group
        if self.closed:
            condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources",
                         "message": "queue resource quota insufficient"}  # fmt: skip
            group["status"] = {"phase": "Pending", "conditions": [condition]}
            return
        group["status"] = {"phase": "Inqueue"}
        for number, task in enumerate(job["spec"]["tasks"]):
            self._start(job, task, number)
        if all(p["status"]["phase"] == "Running" for p in self._pods(job)):
            self._phase(job, "Running")

    def _start(self, job: dict[str, Any], task: dict[str, Any], number: int) -> None:
        meta, namespace = job["metadata"], job["metadata"]["namespace"]
        name = f"{meta['name']}-{task['name']}-0"
        pod = self.pods.get((namespace, name)) or self._new_pod(job, task, name)
        self.pods[namespace, name] = pod
        if self.full:
            writes.unscheduled(pod)
            return
        writes.schedule(pod, f"gpu-{number + 1}")
        try:
            self.environment(namespace, name)
        except KeyError as error:
            writes.wait(pod, "CreateContainerConfigError", f"secret {error} not found")
            return
        if self.broken:
            writes.wait(pod, *self.broken)
        else:
            writes.start(pod)
            self.started(pod)

    def _new_pod(self, job: dict[str, Any], task: dict[str, Any], name: str) -> Pod:
        template = copy.deepcopy(task["template"])
        status = job["status"]
        own = {
            "volcano.sh/job-name": job["metadata"]["name"],
            "volcano.sh/job-version": str(status.get("version", 0)),
            "volcano.sh/job-retry-count": str(status.get("retryCount", 0)),
            "volcano.sh/task-spec": task["name"],
        }
        labels = template["metadata"].get("labels", {})
        notes = template["metadata"].get("annotations", {})
        return {
            "metadata": {
                "name": name,
                "namespace": job["metadata"]["namespace"],
                "uid": str(uuid.uuid4()),
                "creationTimestamp": stamp(),
                "labels": labels | {"volcano.sh/job-name": job["metadata"]["name"]},
                "annotations": notes | own,
            },
            "spec": template["spec"],
            "status": {"phase": "Pending", "conditions": []},
        }

    def _react(self, job: dict[str, Any], pod: Pod, event: str) -> None:
        action = self._policy(job, pod, event)
        if action == "RestartJob":
            job["status"]["retryCount"] = job["status"].get("retryCount", 0) + 1
            self._phase(job, "Restarting")
            self._kill(job, keep_ended=False)
        elif action == "TerminateJob":
            self._phase(job, "Terminating")
            self._kill(job, keep_ended=True)
        else:
            self._sync(job)

    def _policy(self, job: dict[str, Any], pod: Pod, event: str) -> str:
        if job["status"]["state"]["phase"] not in ("Pending", "Running"):
            return ""
        own = pod["metadata"]["annotations"]["volcano.sh/task-spec"]
        of_task = (t.get("policies", ()) for t in job["spec"]["tasks"] if t["name"] == own)
        policies = itertools.chain(*of_task, job["spec"].get("policies", ()))
        return next((each["action"] for each in policies if each["event"] == event), "")

    def _kill(self, job: dict[str, Any], *, keep_ended: bool) -> None:
        job["status"]["version"] = job["status"].get("version", 0) + 1
        for pod in self._pods(job):
            if not (keep_ended and pod["status"]["phase"] in _FINISHED):
                self._delete(pod)
        if not self.lingering:
            self.reap(job["metadata"]["namespace"], job["metadata"]["name"])
        self._sync(job)

    def _delete(self, pod: Pod) -> None:
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = stamp(-grace_s)
            self.deleted(pod)

    def _sync(self, job: dict[str, Any]) -> None:
        phase, pods = job["status"]["state"].get("phase", ""), self._pods(job)
        alive = [pod for pod in pods if pod["status"]["phase"] not in _FINISHED]
        if phase == "Terminating" and not alive:
            self._phase(job, "Terminated")
        elif phase == "Restarting" and not pods:
            spent = job["status"]["retryCount"] >= (job["spec"].get("maxRetry") or 3)
            self._phase(job, "Failed") if spent else self._queue(job)
        elif phase == "Running" and not alive and pods:
            good = all(pod["status"]["phase"] == "Succeeded" for pod in pods)
            self._phase(job, "Completed" if good else "Failed")

    def _phase(self, job: dict[str, Any], phase: str) -> None:
        job["status"]["state"] = {"phase": phase, "lastTransitionTime": stamp()}

    def _pods(self, job: dict[str, Any]) -> list[Pod]:
        meta = job["metadata"]
        names = [f"{meta['name']}-{task['name']}-0" for task in job["spec"]["tasks"]]
        found = (self.pods.get((meta["namespace"], name)) for name in names)
        return [pod for pod in found if pod is not None]


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """Return a text as a kubelet hands it to a container: ``$(NAME)`` is filled in, ``$$`` is $."""
    made, rest = "", text
    while "$" in rest:
        before, _, rest = rest.partition("$")
        made += before
        name, closed, after = rest[1:].partition(")")
        if rest.startswith("$"):
            made, rest = f"{made}$", rest[1:]
        elif rest.startswith("(") and closed:
            made, rest = made + environment.get(name, f"$({name})"), after
        else:
            made += "$"
    return made + rest
