"""Slurm's daemons as a site keeps them: what was killed is started again, what is held released."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_ett.launch.schedulers.processes import Process, identify, is_alive
from tests.slurm.cluster import Cluster
from tests.system.chaos.plan import Target
from tests.system.chaos.targets import pids, read, title

_INIT_S, _OPERATOR_S = 0.25, 2.0
_UP_S = 10.0
"""A daemon that is not there so long after its start is started again."""

_RESTART_S = (0.0, 3.0)
"""So long a daemon is down that its machine starts again."""

_BOOT_S = ((0.5, 3.0), (12.0, 16.0))
"""So long a node is down that lost its power: too short for slurmctld to miss it, or long enough
(``SlurmdTimeout``, 10 s)."""


@dataclass
class Daemon:
    """A daemon by the name of what it is, of its node for a slurmd.

    ``due_s`` is when it is started again, while it is down.
    """

    name: str
    process: Process | None = None
    due_s: float | None = None


def variables(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; nothing where it is gone."""
    texts = read(pid, "environ").split("\0")
    return dict(text.split("=", 1) for text in texts if "=" in text)


class Daemons:
    """The daemons of a cluster that is up, kept up while this is entered."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._nodes = set(cluster.nodes)
        names = (str(Target.SLURMCTLD), str(Target.SLURMDBD), *cluster.nodes)
        self._daemons = {name: Daemon(name) for name in names}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._every, args=(pause_s, work), daemon=True)
            for pause_s, work in ((_INIT_S, self._start), (_OPERATOR_S, self._release))
        ]

    def __enter__(self) -> Daemons:
        self._look()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def living(self, name: str) -> list[Process]:
        """Return a daemon's process, unless it is down."""
        process = self._daemons[name].process
        return [process] if process is not None and is_alive(process) else []

    def inside(self) -> list[int]:
        """Return the numbers of all processes of the cluster."""
        conf = f"SLURM_CONF={self._cluster.conf}"
        return [pid for pid in pids() if conf in read(pid, "environ").split("\0")]

    def of_node(self, node: str) -> list[int]:
        """Return what a node runs for its jobs."""
        return [p for p in self.inside() if variables(p).get("SLURMD_NODENAME") == node]

    def _every(self, pause_s: float, work: Callable[[], None]) -> None:
        while not self._over.wait(pause_s):
            work()

    def _start(self) -> None:
        """Be the init of each machine."""
        if all(map(self.living, self._daemons)):
            return
        self._look()
        for daemon in self._daemons.values():
            if self.living(daemon.name):
                continue
            if daemon.due_s is None:
                down_s = self._rng.choice(_BOOT_S) if self._lost(daemon) else _RESTART_S
                daemon.due_s = time.monotonic() + self._rng.uniform(*down_s)
            elif time.monotonic() >= daemon.due_s:
                self._cluster.start_again(daemon.name, *(["-b"] if self._lost(daemon) else []))
                daemon.due_s = time.monotonic() + _UP_S

    def _lost(self, daemon: Daemon) -> bool:
        """Return whether all went with the daemon that its node ran."""
        return daemon.name in self._nodes and not self.of_node(daemon.name)

    def _look(self) -> None:
        """Note the processes of the daemons that have come up."""
        for pid in self.inside():
            command = title(pid).split("\0")
            name = command[-1] if command[0] == Target.SLURMD else command[0]
            if name in self._daemons and not self.living(name):
                daemon = self._daemons[name]
                daemon.process, daemon.due_s = identify(pid), None

    def _release(self) -> None:
        """Be the operator: release what Slurm holds, and take back the nodes that it blames.

        It does so after it could not start a job; as one that still runs where slurmctld was killed
        before it had saved that.
        """
        with contextlib.suppress(subprocess.CalledProcessError):
            queue = self._cluster.run("squeue", "--noheader", "--states=PD", "--format=%i %r")
            for line in queue.splitlines():
                if line.endswith("held"):
                    self._cluster.run("scontrol", "release", line.split()[0])
            drained = self._cluster.run("sinfo", "--noheader", "--states=drain", "--format=%N")
            if drained:
                self._cluster.run("scontrol", "update", f"node={drained}", "state=resume")
