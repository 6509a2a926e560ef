"""Which schedulers are installed, what each supports, and whether it answers now."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.preparation import SchedulerFactory, scheduler_factories
from airflow_ett.launch.supports import Supports
from airflow_ett.launch.verdict import shortened

TIMEOUT_S = 10.0
"""So long one may take to be set up, and all of them together to answer."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One scheduler. What could not be found out is None, and ``problem`` says why."""

    name: str
    supports: Supports | None = None
    answers: bool | None = None
    problem: str = ""


def survey(
    factories: Mapping[str, SchedulerFactory] | None = None, timeout_s: float = TIMEOUT_S
) -> list[Surveyed]:
    """Look at every scheduler, by name; default: those that are installed. Nothing is submitted.

    They are set up one after the other, since their packages may not be imported side by side, and
    asked all at once. One that hangs is left behind in its thread, which does not keep the process.
    """
    known = scheduler_factories() if factories is None else factories
    looks = [_Look(name, known[name]) for name in sorted(known)]
    for look in looks:
        look.start()
        look.set_up.wait(timeout_s)
    limit_s = time.monotonic() + timeout_s
    for look in looks:
        look.go.set()
    for look in looks:
        look.join(max(0.0, limit_s - time.monotonic()))
    late = f"it has not answered within {timeout_s:g} s"
    return [replace(look.found, problem=late) if look.is_alive() else look.found for look in looks]


class _Look(threading.Thread):
    """A look at one scheduler; ``found`` is what is known so far. It is asked after ``go``."""

    def __init__(self, name: str, factory: SchedulerFactory) -> None:
        super().__init__(name=f"survey {name}", daemon=True)
        self.found = Surveyed(name)
        self.set_up, self.go = threading.Event(), threading.Event()
        # A gateway of its own: setting one up holds up the others of the same gateway.
        self._gateway = Gateway({name: factory})

    def run(self) -> None:
        """Set the scheduler up, then ask it."""
        try:
            self._look(self.found.name)
        except Exception as error:
            problem = error.problem if isinstance(error, ConfigurationError) else str(error)
            self.found = replace(self.found, answers=False, problem=shortened(problem))
        finally:
            self.set_up.set()

    def _look(self, name: str) -> None:
        self.found = replace(self.found, supports=self._gateway.supports(name))
        self.set_up.set()
        self.go.wait()
        self._gateway.reach(name)
        self.found = replace(self.found, answers=True)
