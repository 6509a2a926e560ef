"""Drives one training through its course: waits for each moment, then strikes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import requests

from airflow_ett.demo.rest import Api
from airflow_ett.errors import DemoError
from airflow_ett.launch.schedulers.processes import Process, is_alive, send
from tests.system.chaos.plan import (
    COMPONENTS,
    IN_A_TASK,
    STOPPED,
    USERS,
    Injection,
    Moment,
    Target,
)
from tests.system.chaos.services import Services
from tests.system.chaos.sites import Site
from tests.system.chaos.targets import of_task
from tests.system.chaos.view import TASK_ID, View

_LOOK_S, _SEARCH_S = 0.03, 0.15
_WINDOW_S = 12.0
"""A window that does not open for so long is not waited for any longer."""

_FRESH_NS = 1_000_000_000
_TASK_S, _VICTIM_S = 12.0, 40.0
"""So long a task's process, or a training's own one, is waited for: a deferred task has none."""
_MARKS, _MARK_S = 5, 3.0
_GOAL_MARGIN = 30
_END_S = 150.0

INSTEAD = Injection(Target.TRAINER, "", Moment.ANY, 0.0)
"""What is done where the process in question is not there, as a deferred task's."""


@dataclass
class Blow:
    """An injection as it was done. ``submission`` was the newest then (0: none)."""

    injection: Injection
    time_ns: int
    submission: int
    opened: bool
    pids: list[int]


@dataclass
class Drive:
    """One training's way: what was done to it, what could not be, and how Airflow's run ended.

    ``beside`` is what was done, in the course of other trainings, to what all of them share.
    """

    view: View
    blows: list[Blow] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    state: str = ""
    problem: str = ""
    beside: list[Blow] = field(default_factory=list)


@dataclass
class Driver:
    """Takes one training through its course; ``until`` says when it is to be given up."""

    view: View
    api: Api
    services: Services
    site: Site
    until: Callable[[], bool]

    def __post_init__(self) -> None:
        self._done = Drive(self.view)

    def __call__(self) -> Drive:
        """Drive it to its end."""
        view, done = self.view, self._done
        try:
            self.api.trigger(view.dag_id, view.run_id, {"place": str(view.place)})
            for injection in view.course.injections:
                if injection.moment is Moment.END:
                    view.set_goal(_GOAL_MARGIN)
                self._strike(injection)
                self.services.sweep()
            if not view.course.marked and view.goal() is None:
                view.set_goal(_GOAL_MARGIN)
            done.state = self._await_end()
        except (DemoError, requests.RequestException) as error:
            done.problem = str(error)
        return done

    def _await_end(self) -> str:
        limit = time.monotonic() + _END_S
        while time.monotonic() < limit and not self.until():
            state = self.api.run_state(self.view.dag_id, self.view.run_id)
            if state in {"success", "failed"}:
                return state
            time.sleep(1.0)
        raise DemoError(f"{self.view} did not end within {_END_S:.0f} s of its last injection")

    def _strike(self, injection: Injection) -> None:
        view, target = self.view, injection.target
        ends = target in IN_A_TASK and injection.moment is Moment.END
        # A task that watches has little time left at the end: no time to look for it then.
        known = self._victims(injection) if ends else []
        blow = Blow(injection, 0, 0, self._await_window(injection.moment), [])
        if target in COMPONENTS | USERS:
            time.sleep(injection.delay_s)
            self._note(blow)
            self._act(blow)
        elif not self._kill(blow, known):
            self._done.missed.append(f"{view}: no {target} to kill")
            if target in IN_A_TASK and not ends:
                self._strike(INSTEAD)
            return
        self._done.blows.append(blow)

    def _act(self, blow: Blow) -> None:
        view, injection = self.view, blow.injection
        match injection.target:
            case Target.CLEAR:
                self.api.clear(view.dag_id, view.run_id, TASK_ID)
            case Target.MARK_FAILED:
                self._mark()
            case _:
                blow.time_ns = self.services.kill(injection.target, injection.variant)

    def _mark(self) -> None:
        """Mark the task as failed until it is.

        A scheduler that is just looking at the task writes over a user's mark, and goes on with it.
        """
        view, api = self.view, self.api
        for _ in range(_MARKS):
            api.mark(view.dag_id, view.run_id, TASK_ID, "failed")
            time.sleep(_MARK_S)
            if api.task(view.dag_id, view.run_id, TASK_ID)["state"] == "failed":
                return
        raise DemoError(f"{view} was marked as failed {_MARKS} times and is not")

    def _kill(self, blow: Blow, known: list[Process]) -> bool:
        """Kill what is in question when it has been there for a while; whether it was.

        A training that is preempted is told to end, by its scheduler.
        """
        injection = blow.injection

        def living() -> list[Process]:
            still = [process for process in known if is_alive(process)]
            return still or self._victims(injection)

        delay_s = injection.delay_s
        limit = time.monotonic() + (_TASK_S if injection.target in IN_A_TASK else _VICTIM_S)
        while time.monotonic() < limit and not self.until():
            if living():
                time.sleep(delay_s)
                found = living()
                self._note(blow)
                if found and injection.target is Target.PREEMPT:
                    self._preempt(blow)
                    return True
                told = injection.variant == STOPPED
                for process in found:
                    send(process, signal.SIGTERM if told else signal.SIGKILL)
                blow.pids = [process.pid for process in found]
                if found:
                    return True
                delay_s /= 4  # it had ended by itself: be faster with the next one
            time.sleep(_SEARCH_S)
        return False

    def _preempt(self, blow: Blow) -> None:
        """Have the training preempted, which it is once Slurm has taken the other job."""
        before = blow.submission
        self.site.preempt(self.view)
        self._note(blow)
        if blow.submission != before:
            blow.submission = 0  # that it took so long was the end of it

    def _victims(self, injection: Injection) -> list[Process]:
        if injection.target in IN_A_TASK:
            return of_task(self.view, self.api, injection.target)
        return self.site.victims(self.view, injection.target, injection.variant)

    def _note(self, blow: Blow) -> None:
        intent = self.view.newest_intent()
        blow.time_ns, blow.submission = time.time_ns(), int(intent["number"]) if intent else 0

    def _await_window(self, moment: Moment) -> bool:
        """Wait for a window to open; False where it has not, for long."""
        fresh_ns = time.time_ns() - _FRESH_NS
        limit = time.monotonic() + _WINDOW_S
        while moment is not Moment.ANY and time.monotonic() < limit and not self.until():
            if _is_open(self.view, moment, fresh_ns):
                return True
            time.sleep(_LOOK_S)
        return moment is Moment.ANY


def _is_open(view: View, moment: Moment, fresh_ns: int) -> bool:
    if moment is Moment.SAVING:
        return view.is_saving()
    if moment is Moment.END:
        return view.succeeded()
    seen = view.newest_intent() if moment is Moment.SUBMIT else view.newest_claim()
    task = seen is not None and (moment is Moment.SUBMIT or seen["mode"] == "task")
    return seen is not None and task and bool(seen["time_ns"] >= fresh_ns)
