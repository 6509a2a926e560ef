"""Which processes are whose: the victims of one training, and what a component left behind."""

from __future__ import annotations

from pathlib import Path

from airflow_ett.demo.rest import Api
from airflow_ett.launch.schedulers.processes import Process, descendants, identify
from tests.system.chaos.plan import Target
from tests.system.chaos.view import TASK_ID, View

_TASK_TITLE = "airflow worker -- {}"
"""Airflow's title of a task's process, with the task instance's id: a new one for each try."""


def victims(view: View, api: Api, target: Target, variant: str) -> list[Process]:
    """Return the processes of the training to kill; none where there is no such process now."""
    match target:
        case Target.TASK | Target.TASK_SUPERVISOR:
            instance = str(api.task(view.dag_id, view.run_id, TASK_ID)["id"])
            tasks = _titled(_TASK_TITLE.format(instance))
            return tasks if target is Target.TASK else _parents(tasks)
        case Target.LOCAL_SUPERVISOR:
            return _of_supervisor(view, variant)
        case Target.AGENT:
            return _agent(view)
        case Target.TRAINER:
            return [child for agent in _agent(view) for child in descendants(agent.pid)]
        case _:
            raise ValueError(f"{target} is no process of a training")


def idle_workers(session: int) -> set[Process]:
    """Return the workers without a task of a scheduler's session whose scheduler is gone."""
    return {
        process
        for pid in _pids()
        if (process := identify(pid))
        and _title(pid).endswith("<idle>")
        and _session(pid) == session
    }


def _of_supervisor(view: View, variant: str) -> list[Process]:
    status = view.app_status()
    supervisor = status.supervisor if status and not status.ended_ns else None
    if supervisor is None or identify(supervisor.pid) != supervisor:
        return []
    guard = identify(_parent(supervisor.pid))
    if variant == "supervisor" or guard is None or guard.pid == 1:
        return [supervisor]
    return [guard] if variant == "guard" else [guard, supervisor]


def _agent(view: View) -> list[Process]:
    status = view.app_status()
    found = [replica.process for replica in status.replicas] if status else []
    return [process for process in found if process and identify(process.pid) == process]


def _titled(title: str) -> list[Process]:
    return [p for pid in _pids() if _title(pid) == title and (p := identify(pid))]


def _parents(processes: list[Process]) -> list[Process]:
    found = (identify(_parent(process.pid)) for process in processes)
    return [parent for parent in found if parent and parent.pid != 1]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if fields else 0
