"""A real Slurm as the trainings' site."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping

from airflow_ett.launch.schedulers.processes import Process, identify
from tests.slurm.cluster import Cluster
from tests.slurm.sshd import Sshd
from tests.system.chaos.daemons import Daemons, variables
from tests.system.chaos.plan import NODE, SLURM, Target
from tests.system.chaos.targets import parent, title
from tests.system.chaos.view import View

CONNECTION = "AIRFLOW_CONN_CLUSTER"
_AGENT = "airflow_ett.trainer.agent"
_REQUEUE_S = 10
"""So long Slurm has a requeued job wait here; two minutes is its default."""

_TAKEN_S = 2
_PATIENCE_S, _PAUSE_S = 40.0, 1.0


class SlurmSite:
    """A cluster of three nodes with accounts. See :class:`tests.system.chaos.sites.Site`."""

    scheduler = SLURM

    def __init__(self, seed: int, *, by_ssh: bool = False) -> None:
        self._cluster = Cluster(requeue_wait=_REQUEUE_S)
        self._daemons = Daemons(self._cluster, seed)
        self._by_ssh = by_ssh
        self._login: Sshd | None = None

    def __enter__(self) -> SlurmSite:
        self._cluster.start()
        self._daemons.__enter__()
        if self._by_ssh:
            self._login = Sshd({"SLURM_CONF": self._cluster.conf})
            self._login.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._login is not None:
            self._login.stop()
        self._daemons.__exit__(*error)
        self._cluster.stop()

    @property
    def env(self) -> Mapping[str, str]:
        """Airflow's workers run Slurm's commands, or know a connection to a login node."""
        if self._login is not None:
            return {CONNECTION: self._login.uri()}
        return {"SLURM_CONF": self._cluster.conf}

    def victims(self, view: View, target: Target, variant: str) -> list[Process]:
        """Return them elders first: no slurmd or slurmstepd tells of its children's end."""
        if target in (Target.SLURMCTLD, Target.SLURMDBD):
            return self._daemons.living(str(target))
        job = self._of_job(view)
        agents = [pid for pid in job if _AGENT in title(pid)]
        match target:
            case Target.AGENT | Target.PREEMPT:
                found = agents
            case Target.TRAINER:
                found = [pid for pid in job if parent(pid) in agents]
            case Target.BATCH:
                found = [pid for pid in job if title(pid).endswith("slurm_script")]
            case Target.SLURMD:
                return self._of_node(variables(agents[0]), variant) if agents else []
            case _:
                raise ValueError(f"there is no {target} here")
        return [process for pid in found if (process := identify(pid))]

    def preempt(self, view: View) -> None:
        """A more urgent job takes the training's nodes whole, for a moment."""
        nodes = {variables(pid).get("SLURMD_NODENAME", "") for pid in self._of_job(view)} - {""}
        urgent = ("--partition=urgent", "--exclusive", "--output=none", "--job-name=urgent")
        wanted = f"--nodelist={','.join(sorted(nodes))}"
        if nodes:
            self._patiently("sbatch", *urgent, wanted, f"--wrap=sleep {_TAKEN_S}")

    def processes(self) -> set[Process]:
        """Return all that runs in the cluster: its jobs know nothing of Airflow's stack."""
        return {process for pid in self._daemons.inside() if (process := identify(pid))}

    def jobs(self) -> list[str]:
        """Return the queue."""
        lines = self._patiently("squeue", "--noheader", "--format=%i %j %T %r").splitlines()
        return [f"job {line}" for line in lines]

    def _of_job(self, view: View) -> list[int]:
        """Return the processes of the newest app's job."""
        name, inside = view.newest_app(), self._daemons.inside()
        return [pid for pid in inside if name and variables(pid).get("SLURM_JOB_NAME") == name]

    def _of_node(self, of_agent: Mapping[str, str], variant: str) -> list[Process]:
        """Return the slurmd of the agent's node, and all that it has started."""
        node = of_agent.get("SLURMD_NODENAME")
        if node is None:
            return []
        daemons = self._daemons.living(node)
        if variant != NODE or not daemons:
            return daemons
        tasks = self._daemons.of_node(node)
        steps = {pid for pid in map(parent, tasks) if title(pid).startswith("slurmstepd")}
        found = {process for pid in {*tasks, *steps} if (process := identify(pid))}
        return sorted({*daemons, *found}, key=lambda p: (p.start, p.pid))

    def _patiently(self, *command: str) -> str:
        """Run a command of Slurm's, for as long as it takes slurmctld to be back."""
        limit = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._cluster.run(*command)
            except subprocess.CalledProcessError:
                if time.monotonic() > limit:
                    raise
                time.sleep(_PAUSE_S)
