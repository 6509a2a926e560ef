"""Processes by what they are called: a task's own, and what a component left behind."""

from __future__ import annotations

from pathlib import Path

from airflow_ett.demo.rest import Api
from airflow_ett.launch.schedulers.processes import Process, identify
from tests.system.chaos.plan import Target
from tests.system.chaos.view import TASK_ID, View

_TASK_TITLE = "airflow worker -- {}"
"""Airflow's title of a task's process, with the task instance's id: a new one for each try."""


def of_task(view: View, api: Api, target: Target) -> list[Process]:
    """Return the task's process, or its supervisor; none where there is no such process now."""
    instance = str(api.task(view.dag_id, view.run_id, TASK_ID)["id"])
    tasks = _titled(_TASK_TITLE.format(instance))
    return tasks if target is Target.TASK else _parents(tasks)


def idle_workers(session: int) -> set[Process]:
    """Return the workers without a task of a scheduler's session whose scheduler is gone."""
    return {
        process
        for pid in pids()
        if (process := identify(pid)) and title(pid).endswith("<idle>") and _session(pid) == session
    }


def pids() -> list[int]:
    """Return the numbers of all processes."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def title(pid: int) -> str:
    """Return a process's command line, its parts separated by NUL; empty where it is gone."""
    return read(pid, "cmdline").rstrip("\0")


def parent(pid: int) -> int:
    """Return the number of a process's parent, 0 where it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def read(pid: int, name: str) -> str:
    """Return what a file of a process holds, nothing where the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _titled(text: str) -> list[Process]:
    return [p for pid in pids() if title(pid) == text and (p := identify(pid))]


def _parents(processes: list[Process]) -> list[Process]:
    found = (identify(parent(process.pid)) for process in processes)
    return [parent for parent in found if parent and parent.pid != 1]


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if fields else 0


def _stat(pid: int) -> list[str]:
    return read(pid, "stat").rpartition(")")[2].split()
