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
from tests.system.chaos.plan import COMPONENTS, IN_A_TASK, USERS, Injection, Moment, Target
from tests.system.chaos.services import Services
from tests.system.chaos.targets import victims
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

    ``beside`` is what was done to Airflow's own processes in the course of other trainings.
    """

    view: View
    blows: list[Blow] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    state: str = ""
    problem: str = ""
    beside: list[Blow] = field(default_factory=list)


def drive(view: View, api: Api, services: Services, until: Callable[[], bool]) -> Drive:
    """Take a training through its course to its end; ``until`` says when it is to be given up."""
    done = Drive(view)
    try:
        api.trigger(view.dag_id, view.run_id, {"place": str(view.place)})
        for injection in view.course.injections:
            if injection.moment is Moment.END:
                view.set_goal(_GOAL_MARGIN)
            _strike(done, injection, api, services, until)
            services.sweep()
        if not view.course.marked and view.goal() is None:
            view.set_goal(_GOAL_MARGIN)
        done.state = _await_end(view, api, until)
    except (DemoError, requests.RequestException) as error:
        done.problem = str(error)
    return done


def _await_end(view: View, api: Api, until: Callable[[], bool]) -> str:
    limit = time.monotonic() + _END_S
    while time.monotonic() < limit and not until():
        state = api.run_state(view.dag_id, view.run_id)
        if state in {"success", "failed"}:
            return state
        time.sleep(1.0)
    raise DemoError(f"{view} did not end within {_END_S:.0f} s of its last injection")


def _strike(
    done: Drive, injection: Injection, api: Api, services: Services, until: Callable[[], bool]
) -> None:
    view = done.view
    ends = injection.target in IN_A_TASK and injection.moment is Moment.END
    # A task that watches has little time left at the end: no time to look for it then.
    known = victims(view, api, injection.target, injection.variant) if ends else []
    blow = Blow(injection, 0, 0, _await_window(view, injection.moment, until), [])
    if injection.target not in COMPONENTS | USERS:
        if not _kill(blow, known, view, api, until):
            done.missed.append(f"{view}: no {injection.target} to kill")
            if injection.target in IN_A_TASK and not ends:
                _strike(done, INSTEAD, api, services, until)
            return
    else:
        time.sleep(injection.delay_s)
        _note(blow, view)
        if injection.target is Target.CLEAR:
            api.clear(view.dag_id, view.run_id, TASK_ID)
        elif injection.target is Target.MARK_FAILED:
            _mark(view, api)
        else:
            blow.time_ns = services.kill(injection.target, injection.variant)
    done.blows.append(blow)


def _mark(view: View, api: Api) -> None:
    """Mark the task as failed until it is.

    A scheduler that is just looking at the task writes over a user's mark, and goes on with it.
    """
    for _ in range(_MARKS):
        api.mark(view.dag_id, view.run_id, TASK_ID, "failed")
        time.sleep(_MARK_S)
        if api.task(view.dag_id, view.run_id, TASK_ID)["state"] == "failed":
            return
    raise DemoError(f"{view} was marked as failed {_MARKS} times and is not")


def _kill(
    blow: Blow, known: list[Process], view: View, api: Api, until: Callable[[], bool]
) -> bool:
    """Kill the processes in question when they have been there for a while; whether they were."""
    injection = blow.injection

    def living() -> list[Process]:
        still = [process for process in known if is_alive(process)]
        return still or victims(view, api, injection.target, injection.variant)

    delay_s = injection.delay_s
    limit = time.monotonic() + (_TASK_S if injection.target in IN_A_TASK else _VICTIM_S)
    while time.monotonic() < limit and not until():
        if living():
            time.sleep(delay_s)
            found = living()
            _note(blow, view)
            for process in found:
                send(process, signal.SIGKILL)
            blow.pids = [process.pid for process in found]
            if found:
                return True
            delay_s /= 4  # it had ended by itself: be faster with the next one
        time.sleep(_SEARCH_S)
    return False


def _note(blow: Blow, view: View) -> None:
    intent = view.newest_intent()
    blow.time_ns, blow.submission = time.time_ns(), int(intent["number"]) if intent else 0


def _await_window(view: View, moment: Moment, until: Callable[[], bool]) -> bool:
    """Wait for a window to open; False where it has not, for long."""
    fresh_ns = time.time_ns() - _FRESH_NS
    limit = time.monotonic() + _WINDOW_S
    while moment is not Moment.ANY and time.monotonic() < limit and not until():
        if _is_open(view, moment, fresh_ns):
            return True
        time.sleep(_LOOK_S)
    return moment is Moment.ANY


def _is_open(view: View, moment: Moment, fresh_ns: int) -> bool:
    if moment is Moment.SAVING:
        return view.is_saving()
    if moment is Moment.END:
        status = view.app_status()
        return status is not None and bool(status.ended_ns) and status.state == "SUCCEEDED"
    seen = view.newest_intent() if moment is Moment.SUBMIT else view.newest_claim()
    task = seen is not None and (moment is Moment.SUBMIT or seen["mode"] == "task")
    return seen is not None and task and bool(seen["time_ns"] >= fresh_ns)
