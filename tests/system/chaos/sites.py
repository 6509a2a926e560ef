"""Where trainings run: what is there to be killed, and what must not be left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from airflow_ett.launch.schedulers.appdir import AppDir, Status
from airflow_ett.launch.schedulers.processes import Process, descendants, identify
from tests.system.chaos.plan import LOCAL, Target
from tests.system.chaos.targets import parent
from tests.system.chaos.view import View


class Site(Protocol):
    """A scheduler with its machines. While it is entered, it is there."""

    scheduler: str

    def __enter__(self) -> Site:
        """Come up."""

    def __exit__(self, *error: object) -> None:
        """Go away with all that runs there."""

    @property
    def env(self) -> Mapping[str, str]:
        """What Airflow must be told to reach it."""

    def victims(self, view: View, target: Target, variant: str) -> list[Process]:
        """Return what of a training, or of the site, is to be killed; nothing where it is not."""

    def preempt(self, view: View) -> None:
        """Have a more urgent job take the training's nodes for a moment."""

    def processes(self) -> set[Process]:
        """Return what lives here beyond the processes that Airflow's own stack knows."""

    def jobs(self) -> list[str]:
        """Return which jobs the scheduler still has to end, in words."""


class Machine:
    """This machine, with ``local_detached``."""

    scheduler = LOCAL

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to end."""

    @property
    def env(self) -> Mapping[str, str]:
        """See :class:`Site`."""
        return {}

    def victims(self, view: View, target: Target, variant: str) -> list[Process]:
        """See :class:`Site`."""
        match target:
            case Target.LOCAL_SUPERVISOR:
                return _of_supervisor(_status(view), variant)
            case Target.AGENT:
                return _agents(_status(view))
            case Target.TRAINER:
                agents = _agents(_status(view))
                return [child for agent in agents for child in descendants(agent.pid)]
            case _:
                raise ValueError(f"there is no {target} here")

    def preempt(self, view: View) -> None:
        """See :class:`Site`."""
        raise ValueError("nothing is preempted here")

    def processes(self) -> set[Process]:
        """See :class:`Site`."""
        return set()

    def jobs(self) -> list[str]:
        """See :class:`Site`."""
        return []


def _status(view: View) -> Status | None:
    """Return what the newest app's supervisor recorded."""
    name = view.newest_app()
    return AppDir(view.home / "ett" / "local" / name).read_status() if name else None


def _of_supervisor(status: Status | None, variant: str) -> list[Process]:
    supervisor = status.supervisor if status and not status.ended_ns else None
    if supervisor is None or identify(supervisor.pid) != supervisor:
        return []
    guard = identify(parent(supervisor.pid))
    if variant == "supervisor" or guard is None or guard.pid == 1:
        return [supervisor]
    return [guard] if variant == "guard" else [guard, supervisor]


def _agents(status: Status | None) -> list[Process]:
    found = [replica.process for replica in status.replicas] if status else []
    return [process for process in found if process and identify(process.pid) == process]
