"""A kubelet whose containers are processes of this machine: so real trainings run on the cluster.

What Kubernetes hands to a container arrives as it would there: the environment out of Secrets and
annotations, the command with its variables filled in, SIGTERM, the grace and SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

from tests.launch.schedulers.kubernetes import pods as writes
from tests.launch.schedulers.kubernetes.pods import Pod
from tests.launch.schedulers.kubernetes.volcano import Cluster, expanded


class Kubelet:
    """Runs what is started on a cluster, in ``folder``."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []
        cluster.lingering = True
        cluster.started, cluster.deleted = self._start, self._stop

    def close(self) -> None:
        """End what is left."""
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for thread in self._threads:
            thread.join(20)

    def _start(self, pod: Pod) -> None:
        meta = pod["metadata"]
        environment = self._cluster.environment(meta["namespace"], meta["name"])
        environment["VC_TRAINER_0_HOSTS"] = "127.0.0.1"  # by Volcano's plugin svc
        command = pod["spec"]["containers"][0]["command"]
        process = subprocess.Popen(
            [expanded(part, environment) for part in command],
            env=environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._processes[meta["uid"]] = process
        self._in_thread(self._follow, pod, process)

    def _follow(self, pod: Pod, process: subprocess.Popen[str]) -> None:
        meta = pod["metadata"]
        for line in process.stdout or ():
            self._cluster.say(meta["namespace"], meta["name"], line)
        number = process.wait()
        code = 128 - number if number < 0 else number
        with self._cluster.lock:
            if "deletionTimestamp" in meta:
                writes.end(pod, code)
                self._cluster.gone(pod)
                return
            job = meta["labels"]["volcano.sh/job-name"]
            replica = int(meta["labels"]["torchx.pytorch.org/replica-id"])
            self._cluster.end(meta["namespace"], job, lambda p: writes.end(p, code), replica)

    def _stop(self, pod: Pod) -> None:
        process = self._processes.get(pod["metadata"]["uid"])
        if process is not None and process.poll() is None:
            grace_s = pod["spec"]["terminationGracePeriodSeconds"]
            self._in_thread(_end, process, grace_s)

    def _in_thread(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


def _end(process: subprocess.Popen[str], grace_s: float) -> None:
    process.terminate()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
