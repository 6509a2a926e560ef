"""Airflow's components as a service manager keeps them: killed here, started again here."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

from airflow_ett.demo.processes import of_session
from airflow_ett.demo.stack import AirflowStack
from airflow_ett.launch.schedulers.processes import descendants, identify, kill_all, send
from tests.system.chaos.plan import Target
from tests.system.chaos.targets import idle_workers

_UP_S = 8.0
"""So long a component runs at least before it is killed again."""

_DOWN_S = 3.0
_STOP_S = 3.0
_KEEP_S = 0.5


class Services:
    """Kills components in the ways of :data:`plan.VARIANTS`, one at a time each.

    While it is entered, components that end by themselves are started again, too, as a scheduler
    does whose SQLite is locked for long; ``crashes`` names them.
    """

    def __init__(self, stack: AirflowStack, seed: int) -> None:
        self._stack = stack
        self._rng = random.Random(seed)
        self._locks = {component: threading.Lock() for component in stack.components}
        self._since = dict.fromkeys(stack.components, time.monotonic())
        self._left: list[int] = []
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self.crashes: list[str] = []

    def __enter__(self) -> Services:
        self._keeper.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._keeper.join()

    def kill(self, target: Target, variant: str) -> int:
        """Kill a component, start it again a little later; return when it was killed (UTC ns)."""
        component = str(target)
        with self._locks[component]:
            time.sleep(max(0.0, self._since[component] + _UP_S - time.monotonic()))
            leader = self._stack.pid(component)
            killed_ns = time.time_ns()
            if variant == "runner":
                for process in descendants(leader):
                    send(process, signal.SIGKILL)
                self._await_end(leader)
                self._stack.stop_component(component, grace_s=0)
            elif variant == "rest left":
                os.kill(leader, signal.SIGKILL)
                self._left.append(leader)
            elif variant == "rest told":
                os.kill(leader, signal.SIGKILL)
                self._stack.stop_component(component, grace_s=_STOP_S)
            else:
                kill_all(lambda: of_session(leader), _STOP_S)
                self._stack.stop_component(component, grace_s=0)
            time.sleep(self._rng.uniform(0, _DOWN_S))
            self._start(component)
            return killed_ns

    def sweep(self) -> None:
        """End the idle workers of schedulers that died alone; the busy ones keep their task."""
        for leader in self._left:
            for process in idle_workers(leader):
                send(process, signal.SIGKILL)

    def _start(self, component: str) -> None:
        self._stack.start_component(component)
        self._since[component] = time.monotonic()

    def _keep(self) -> None:
        while not self._over.wait(_KEEP_S):
            for component, lock in self._locks.items():
                if not lock.acquire(blocking=False):
                    continue
                try:
                    if identify(self._stack.pid(component)) is None:
                        self.crashes.append(component)
                        self._stack.stop_component(component, grace_s=_STOP_S)
                        self._start(component)
                finally:
                    lock.release()

    def _await_end(self, leader: int) -> None:
        """Wait a little for a triggerer to notice that its runner is gone."""
        until = time.monotonic() + _STOP_S
        while of_session(leader) and time.monotonic() < until:
            time.sleep(0.1)
