"""What kubelets and controllers write of a pod, in Kubernetes' own form and words.

The forms are those that Kubernetes' documentation and issues quote of pods: killed for memory,
evicted by a kubelet, drained, preempted by kube-scheduler or by Volcano, on a lost node, without an
image.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

Pod = dict[str, Any]

GANG = "1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 1 minAvailable"
NO_GPUS = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def stamp(age_s: float = 0.0) -> str:
    """Return the time ``age_s`` ago as Kubernetes writes times."""
    return datetime.fromtimestamp(time.time() - age_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(pod: Pod, kind: str, status: str, reason: str = "", message: str = "") -> None:
    """Set a condition of a pod."""
    said = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": stamp()}
    said |= {k: v for k, v in (("reason", reason), ("message", message)) if v}
    others = [each for each in pod["status"].get("conditions", ()) if each["type"] != kind]
    pod["status"]["conditions"] = [*others, said]


def unscheduled(pod: Pod, message: str = NO_GPUS) -> None:
    """No node has room for it."""
    condition(pod, "PodScheduled", "False", "Unschedulable", message)


def schedule(pod: Pod, node: str, age_s: float = 0.0) -> None:
    """It has a node, which is about to fetch its image."""
    pod["spec"]["nodeName"] = node
    condition(pod, "PodScheduled", "True")
    pod["status"]["conditions"][-1]["lastTransitionTime"] = stamp(age_s)
    pod["status"]["startTime"] = stamp(age_s)
    wait(pod, "ContainerCreating")


def wait(pod: Pod, reason: str, message: str = "") -> None:
    """Its container does not start for now."""
    waiting = {"reason": reason, **({"message": message} if message else {})}
    _container(pod, {"waiting": waiting})


def start(pod: Pod) -> None:
    """Its container runs."""
    pod["status"]["phase"] = "Running"
    _container(pod, {"running": {"startedAt": stamp()}})
    condition(pod, "Ready", "True")


def end(pod: Pod, code: int, reason: str = "") -> None:
    """Its container has ended, and so it has."""
    state = pod["status"].get("containerStatuses", [{}])[0].get("state", {})
    began = state.get("running", {}).get("startedAt", stamp())
    said = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"),
            "startedAt": began, "finishedAt": stamp()}  # fmt: skip
    _container(pod, {"terminated": said})
    pod["status"]["phase"] = "Failed" if code else "Succeeded"
    condition(pod, "Ready", "False", "PodFailed" if code else "PodCompleted")


def out_of_memory(pod: Pod) -> None:
    """The kernel has killed its container at the memory limit."""
    end(pod, 137, "OOMKilled")


def unstartable(pod: Pod) -> None:
    """Its command is not in its image."""
    end(pod, 128, "StartError")
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    terminated["message"] = 'exec: "python": executable file not found in $PATH: unknown'


def evicted(pod: Pod) -> None:
    """Its kubelet has ended it, since the node ran low on something."""
    message = (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. "
        "Container trainer-0 was using 9402820Ki, request is 7G, has larger consumption of memory. "
    )
    end(pod, 137)
    pod["status"] |= {"reason": "Evicted", "message": message}
    condition(pod, "DisruptionTarget", "True", "TerminationByKubelet", message)


def node_shut_down(pod: Pod) -> None:
    """Its node goes down in an orderly way."""
    message = "Pod was terminated in response to imminent node shutdown."
    end(pod, 143)
    pod["status"] |= {"reason": "Terminated", "message": message}
    condition(pod, "DisruptionTarget", "True", "TerminationByKubelet", message)


def past_deadline(pod: Pod) -> None:
    """It was active for longer than its ``activeDeadlineSeconds``."""
    pod["status"] |= {
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }


def refused_by_node(pod: Pod) -> None:
    """Its node has lost a GPU since it was promised."""
    pod["status"] |= {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Allocate failed due to requested number of devices unavailable for "
        "nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
    }


def preempted(pod: Pod) -> None:
    """kube-scheduler is about to delete it for one of a higher priority."""
    message = "volcano: preempting to accommodate a higher priority pod"
    condition(pod, "DisruptionTarget", "True", "PreemptionByScheduler", message)


def preempted_by_volcano(pod: Pod) -> None:
    """Volcano is about to delete it for another job."""
    condition(pod, "Ready", "False", "Evict", "Pod is evicted, because of preempt")


def drained(pod: Pod) -> None:
    """Somebody drains its node."""
    message = "Eviction API: evicting"
    condition(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", message)


def on_lost_node(pod: Pod) -> None:
    """Its node has not answered for longer than it tolerates."""
    message = "Taint manager: deleting due to NoExecute taint"
    condition(pod, "DisruptionTarget", "True", "DeletionByTaintManager", message)
    condition(pod, "Ready", "False")


def _container(pod: Pod, state: dict[str, Any]) -> None:
    spec = pod["spec"]["containers"][0]
    said = {"name": spec["name"], "image": spec["image"], "restartCount": 0, "state": state}
    pod["status"]["containerStatuses"] = [said]
